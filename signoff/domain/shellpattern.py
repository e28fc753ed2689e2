"""Patterns on shell commands: words, a star in a word, and any words after a prefix."""

from __future__ import annotations

import fnmatch
from collections.abc import Sequence
from dataclasses import dataclass

from signoff.domain.glob import Glob, Match, fold, sequence
from signoff.domain.shellcode import Part, ShellCode, Word, carries, pattern_words, program
from signoff.domain.shelloptions import plain_sed, strays


@dataclass(frozen=True, slots=True, kw_only=True)
class ShellPattern:
    """Words, of which None stands for others: one in the middle of an allow, any at the end."""

    words: tuple[Glob | None, ...]

    @property
    def literal(self) -> tuple[str, ...]:
        """The literal words it begins with."""
        found: list[str] = []
        for word in self.words:
            if word is None or word.literal is None:
                break
            found.append(word.literal)
        return tuple(found)

    @property
    def allowable(self) -> bool:
        """False when no allow rule of this pattern could ever cover a call."""
        return bool(self.literal) and not carries(self.literal)

    @property
    def stuck(self) -> bool:
        """True when it ends in a star that sticks to a letter or digit of the last word.

        It is one word and no further ones, which ``status*`` hides and ``src/*`` does not.
        """
        last = self.words[-1]
        if last is None or last.literal is not None or last.literals[-1] != "":
            return False
        return last.literals[-2][-1:].isalnum()

    def allows(self, code: ShellCode) -> bool:
        """True when the text is one literal command that the pattern states."""
        words = code.literal
        if words is None or carries(words) or not self.states(words):
            return False
        return _harmless(self.literal, words[len(self._stated) :])

    def states(self, words: Sequence[str]) -> bool:
        """True when the words are as the pattern says, whatever those that it leaves open do."""
        stated = self._stated
        prefix = len(stated) < len(self.words)
        if len(words) < len(stated) or (not prefix and len(words) > len(stated)):
            return False
        return all(_states(one, word) for one, word in zip(stated, words, strict=False))

    @property
    def _stated(self) -> tuple[Glob | None, ...]:
        return self.words[:-1] if self.words[-1] is None else self.words

    def forbids(self, code: ShellCode) -> Match:
        """Whether anything that the text runs may be as the pattern says."""
        if not code.parsed:
            return Match.MAYBE
        found = Match.MAYBE if code.opaque else Match.NO
        parts = self._candidates(code)
        if not parts:
            return found
        pattern = self._loose()
        for part in parts:
            found = max(found, self._covers(pattern, part))
            if found is Match.YES:
                break
        return found

    def work(self, code: ShellCode) -> int:
        """How many words ``forbids`` compares at most."""
        if not code.parsed:
            return 1
        parts = self._candidates(code)
        if all(word is not None and word.literal is not None for word in self.words[:-1]):
            return 1 + len(parts) * len(self.words)
        return 1 + sum(len(part) * len(self.words) for part in parts)

    def _candidates(self, code: ShellCode) -> Sequence[Part]:
        first = self.words[0]
        if first is None or first.literal is None:
            return code.parts
        return code.run_as(fold(first.literal))

    def _loose(self) -> list[tuple[int, Glob] | None]:
        """The words to ask and deny by: a star at either end spans further words."""
        words: list[tuple[int, Glob] | None] = [
            None if word is None else (n, word.folded()) for n, word in enumerate(self.words)
        ]
        first, last = self.words[0], self.words[-1]
        if first is not None and first.literals[0] == "" and first.literal is None:
            words.insert(0, None)
        if last is not None and last.literals[-1] == "" and last.literal is None:
            words.append(None)
        return words

    def _covers(self, pattern: Sequence[tuple[int, Glob] | None], part: Part) -> Match:
        found = sequence(pattern, list(enumerate(part)), _same)
        if found is not Match.NO or len(self.literal) < 2:  # noqa: PLR2004 - a name and more
            return found
        # "git -C . push" for "git push": options may stand between the words.
        name, *rest = (fold(word) for word in self.literal)
        texts = [word.text for word in part]
        if len(texts) < 2 or texts[0] is None or program(texts[0]) != name:  # noqa: PLR2004
            return Match.NO
        if texts[1] is not None and not texts[1].startswith("-"):
            return Match.NO
        at = iter(texts[1:])
        there = all(any(text is None or fold(text) == word for text in at) for word in rest)
        return Match.MAYBE if there else Match.NO


def shell_pattern(text: str) -> ShellPattern | None:
    """The pattern that ``text`` states; None when it states no command."""
    body = text.removesuffix(":*")
    prefix = body != text
    if body != body.strip(" "):
        return None
    scanned = pattern_words(body)
    if scanned is None:
        return None
    words: list[Glob | None] = []
    for word in scanned:
        if word == [None]:
            words.append(None)
            continue
        literals = [""]
        for piece in word:
            if piece is None:
                literals.append("")
            else:
                literals[-1] += piece
        words.append(Glob(tuple(literals)))
    if words[0] is None or (prefix and words[-1] is None):
        return None
    if prefix:
        words.append(None)
    return ShellPattern(words=tuple(words))


def _states(one: Glob | None, word: str) -> bool:
    """True when an allow states the word; a star never stands for an option or another folder."""
    if one is None:
        return not word.startswith("-")
    if one.literal is not None:
        return word == one.literal
    if one.literals[0] == "" and word.startswith("-"):
        return False
    return one.matches(word, star=lambda char: char != "/")


def _harmless(stated: tuple[str, ...], extra: Sequence[str]) -> bool:
    """True when the words that a prefix leaves open only name what its command works on."""
    name = program(stated[0])
    if name == "sed":
        return _plain_sed(stated, extra)
    if name == "make" and any(word.startswith(("SHELL=", "MAKEFLAGS=")) for word in extra):
        return False
    return not strays(name, extra, first=len(stated) == 1)


def _plain_sed(stated: tuple[str, ...], extra: Sequence[str]) -> bool:
    """True when sed is left to substitute text and nothing else; its scripts can run commands."""
    if not extra:
        return True
    script = any(not word.startswith("-") for word in stated[1:])
    rest = list(extra)
    if not script and not plain_sed(rest.pop(0)):
        return False
    return not any(word.startswith("-") for word in rest)


def _same(pattern: tuple[int, Glob], item: tuple[int, Word]) -> Match:
    (_, glob), (at, word) = pattern, item
    if word.text is None:
        return Match.MAYBE
    texts = (fold(word.text), fold(program(word.text))) if at == 0 else (fold(word.text),)
    if any(glob.matches(text) for text in texts):
        return Match.YES
    if word.globs:
        if glob.literal is None:
            return Match.MAYBE
        if any(fnmatch.fnmatchcase(glob.literal, text) for text in texts):
            return Match.YES
    return Match.NO
