"""Reads shell text with the grammar of bash, for rules about commands."""

from __future__ import annotations

import re
from functools import lru_cache

import tree_sitter_bash
from tree_sitter import Language, Node, Parser

from signoff.domain.shellcode import (
    MAX_LENGTH,
    MAX_PARTS,
    UNREAD,
    Part,
    ShellCode,
    Word,
    carried,
    literal_words,
    spread,
)

_DEPTH = 5
#: The grammar goes over text that it does not take again and again, and asks for each piece anew.
_PIECE = 1024
_MAX_PIECES = 4_000
_COMMANDS = frozenset({"command", "declaration_command", "unset_command", "test_command"})
_NOT_WORDS = frozenset(
    {"variable_assignment", "file_redirect", "heredoc_redirect", "herestring_redirect"}
)
_ASCII = bytes(range(0x80)) + b"u" * 0x80
_ANSI = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v", "e": "\x1b"}
_ANSI_CODE = re.compile(
    r"\\(?:x([0-9a-fA-F]{1,2})|u([0-9a-fA-F]{1,4})|U([0-9a-fA-F]{1,8})|([0-7]{1,3})|(.))", re.DOTALL
)


@lru_cache(maxsize=1)
def _language() -> Language:
    return Language(tree_sitter_bash.language())


def read_shell(text: str) -> ShellCode:
    """What ``text`` may run. Total; text that the grammar does not take is marked so."""
    if len(text) > MAX_LENGTH or "\0" in text:
        return UNREAD
    try:
        raw = text.encode()
    except UnicodeEncodeError:
        return UNREAD
    reading = _Reading()
    parsed = reading.add(text, 0)
    if "\\\n" in text:
        # The shell joins such lines before it looks for words; the grammar does not.
        parsed &= reading.add(text.replace("\\\n", ""), 0)
    while reading.codes and len(reading.parts) <= MAX_PARTS:
        # What another command carries may be no code at all, so it does not have to be understood.
        reading.opaque |= not reading.add(*reading.codes.pop())
    if len(reading.parts) > MAX_PARTS:
        return UNREAD
    return ShellCode(
        literal=_literal(text, raw),
        parts=tuple(reading.parts),
        opaque=reading.opaque,
        parsed=parsed,
    )


class _Reading:
    """What was found so far, and what is to be read yet."""

    def __init__(self) -> None:
        self.parts: dict[Part, None] = {}
        self.codes: list[tuple[str, int]] = []
        self.opaque = False
        self._seen: set[str] = set()
        self._pieces = _MAX_PIECES

    def add(self, code: str, depth: int) -> bool:
        """Reads one text; False when the grammar does not take all of it."""
        raw = code.encode(errors="surrogatepass")
        tree, used = _parse(raw, self._pieces)
        self._pieces -= used
        found, clean = _commands(tree, raw)
        # Two ends of a here document that differ beyond ASCII look alike to the grammar.
        clean &= code.isascii() or "<<" not in code
        for part in found:
            if part and part not in self.parts:
                self.parts[part] = None
                for one in self._expand(part, depth):
                    self.parts[one] = None
                    # The commands that it carries in its words are among those already.
                    self._expand(one, depth)
        return clean and self._pieces > 0

    def _expand(self, part: Part, depth: int) -> list[Part]:
        more, codes, unseen = carried(part)
        self.opaque |= unseen
        for code in codes:
            if depth >= _DEPTH:
                self.opaque = True
            elif code not in self._seen:
                self._seen.add(code)
                self.codes.append((code, depth + 1))
        return more


def _literal(text: str, raw: bytes) -> tuple[str, ...] | None:
    """The words of one literal command: two readers must agree on them."""
    words = literal_words(text)
    if words is None:
        return None
    root, _ = _parse(raw, _MAX_PIECES)
    if root.has_error or len(root.children) != 1 or root.children[0].type != "command":
        return None
    read = _words(root.children[0], raw)
    return words if read == tuple(Word(word) for word in words) else None


def _parse(raw: bytes, most: int) -> tuple[Node, int]:
    """The tree of ``raw`` and how many pieces it took; from ``most`` on it is not of all.

    To bash whatever is beyond ASCII is a character of a word, and nothing else. The grammar gets a
    letter for each such byte: its lexer looks large characters up in tables that end before them,
    which can end the process. Places stay as they are, so words are taken from ``raw``.
    """
    taken = 0
    shown = raw.translate(_ASCII)

    def piece(at: int, _: object) -> bytes:
        nonlocal taken
        taken += 1
        return shown[at : at + _PIECE] if taken < most else b""

    return Parser(_language()).parse(piece).root_node, taken


def _commands(root: Node, raw: bytes) -> tuple[list[Part], bool]:
    found: list[Part] = []
    pending = [root]
    while pending:
        node = pending.pop()
        pending.extend(node.children)
        if node.type in _COMMANDS:
            found.append(_words(node, raw))
            source = _source(node, raw)
            if "{" in source:
                found.append(spread(source))
    return found, not root.has_error


def _words(node: Node, raw: bytes) -> Part:
    words: list[Word] = []
    for child in node.children:
        if child.type not in _NOT_WORDS or node.type == "declaration_command":
            inner = child.children[0] if child.type == "command_name" and child.children else child
            words.append(_word(inner, raw))
    return tuple(words)


def _word(node: Node, raw: bytes) -> Word:
    source = _source(node, raw)
    kind = node.type
    if kind == "raw_string":
        return Word(source[1:-1])
    if kind == "string":
        if any(child.type not in ('"', "string_content") for child in node.children):
            return Word(None)
        return Word(re.sub(r'\\([$`"\\\n])', lambda m: m[1].strip("\n"), source[1:-1]))
    if kind == "ansi_c_string":
        return Word(_ansi(source[2:-1]))
    if kind == "concatenation":
        return _joined(node, raw)
    if node.named_child_count:
        return Word(None)
    return _bare(source)


def _bare(source: str) -> Word:
    if "$" in source or "`" in source:
        return Word(None)
    if "{" in source.replace("{}", ""):
        return Word(None)
    globs = re.search(r"(?<!\\)[*?\[]", source) is not None
    plain = re.sub(r"\\(.)", lambda m: m[1].strip("\n"), source, flags=re.DOTALL)
    # What ~ stands for is not known here, and the name of a program does not depend on it.
    return Word(plain, globs)


def _joined(node: Node, raw: bytes) -> Word:
    texts: list[str] = []
    globs = False
    at = node.start_byte
    for child in node.children:
        word = _word(child, raw)
        if word.text is None or child.start_byte != at:
            return Word(None)
        texts.append(word.text)
        globs |= word.globs
        at = child.end_byte
    return Word("".join(texts), globs) if at == node.end_byte else Word(None)


def _ansi(source: str) -> str | None:
    def one(found: re.Match[str]) -> str:
        short, long, longer, octal, char = found.groups()
        if octal:
            return chr(int(octal, 8) & 0xFF)
        if code := short or long or longer:
            return chr(int(code, 16))
        return _ANSI.get(char, char)

    try:
        return _ANSI_CODE.sub(one, source)
    except (ValueError, OverflowError):
        return None


def _source(node: Node, raw: bytes) -> str:
    return raw[node.start_byte : node.end_byte].decode(errors="replace")
