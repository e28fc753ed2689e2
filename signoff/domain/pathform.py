"""Paths of tool calls and path patterns of rules: one exact form to allow, every form to deny."""

from __future__ import annotations

import posixpath
import re
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from urllib.parse import unquote

from signoff.domain.glob import Glob, Match, fold, sequence

#: The path with links resolved, for an absolute path; None when that cannot be told.
Resolve = Callable[[str], str | None]
MAX_LENGTH = 4096
_ODD = re.compile(r"[\\$`]|%[0-9A-Fa-f]{2}|^~|^[A-Za-z][A-Za-z0-9+.-]*:|//|(?<=.)/$|[. ](?=/|$)")
#: What such a path names depends on the process that looks.
_MAGIC = ("/proc/", "/dev/fd/", "/dev/stdin", "/dev/stdout", "/dev/stderr")


@dataclass(frozen=True, slots=True, kw_only=True)
class PathForms:
    """One path of a call."""

    #: What the path names and nothing else: absolute and resolved, or relative and plain.
    exact: str | None
    #: Whatever it might name, folded.
    spellings: tuple[str, ...]
    #: It may name something that no spelling shows.
    strays: bool
    resolve: Resolve


def path_forms(text: str, resolve: Resolve) -> PathForms:
    """The forms of ``text``. Total; what is unusual has no exact form."""
    segments = text.split("/")
    # Dots and spaces at the end of a name are dropped by some file systems; "." and ".." are not.
    shown = "/".join("x" if item in (".", "..") else item for item in segments)
    odd = (
        not text
        or len(text) > MAX_LENGTH
        or not text.isprintable()
        or _ODD.search(shown) is not None
        or unicodedata.normalize("NFC", text) != text
    )
    absolute = text.startswith("/")
    climbs = not absolute and ".." in segments
    exact = real = None
    if absolute and len(text) <= MAX_LENGTH and "\0" not in text:
        real = resolve(text)
    if not odd and not climbs:
        exact = real if absolute else posixpath.normpath(text)
    if exact is not None and f"{exact}/".startswith(_MAGIC):
        exact = None
    magic = absolute and posixpath.normpath(text).startswith(_MAGIC)
    named = [text[:MAX_LENGTH], unquote(text[:MAX_LENGTH]), text[:MAX_LENGTH].replace("\\", "/")]
    forms = {_spelling(item) for item in [*named, *([] if real is None else [real])]}
    return PathForms(
        exact=None if magic else exact,
        spellings=tuple(forms),
        strays=odd or climbs or magic or (absolute and real is None),
        resolve=resolve,
    )


def _spelling(text: str) -> str:
    path = posixpath.normpath(text) if text else text
    path = f"/{path.lstrip('/')}" if path.startswith("/") else path
    return "/".join(
        part if part in ("", ".", "..") else part.rstrip(". ") for part in fold(path).split("/")
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PathPattern:
    """A pattern on whole names between slashes; None stands for any number of them."""

    absolute: bool
    segments: tuple[Glob | None, ...]

    @property
    def anywhere(self) -> bool:
        """True when it begins with ``**``, so that an ask or deny covers absolute paths too."""
        return not self.absolute and self.segments[0] is None

    def allows(self, forms: PathForms) -> bool:
        """True when the path is exactly within the pattern."""
        if forms.exact is None or forms.exact.startswith("/") != self.absolute:
            return False
        return _covers(self.segments, _split(forms.exact)) is Match.YES

    def forbids(self, forms: PathForms) -> Match:
        """Whether the path may be within the pattern, however it is spelled."""
        folded = [None if item is None else item.folded() for item in self.segments]
        patterns = [(self.absolute, folded)]
        if (root := self._real_root(forms.resolve)) is not None:
            patterns.append((True, [*root, *folded[len(self._root()) :]]))
        for absolute, segments in patterns:
            for spelling in forms.spellings:
                same = spelling.startswith("/") == absolute or self.anywhere
                if same and _covers(segments, _split(spelling)) is Match.YES:
                    return Match.YES
        return Match.MAYBE if forms.strays else Match.NO

    def work(self, forms: PathForms) -> int:
        """How many names ``allows`` or ``forbids`` compares at most."""
        plain = len(self._root())
        if plain == len(self.segments):
            return 1 + plain
        names = sum(spelling.count("/") + 1 for spelling in forms.spellings)
        return 1 + plain + (len(self.segments) - plain) * names

    def _root(self) -> list[str]:
        found: list[str] = []
        for item in self.segments:
            if item is None or item.literal is None:
                break
            found.append(item.literal)
        return found

    def _real_root(self, resolve: Resolve) -> list[Glob] | None:
        """Where the pattern's folder really is, if that is elsewhere."""
        root = "/" + "/".join(self._root())
        real = resolve(root) if self.absolute and len(root) > 1 else None
        if real is None or real == root:
            return None
        return [Glob((fold(item),)) for item in _split(real)]


def path_pattern(text: str) -> PathPattern | None:
    """The pattern that ``text`` states; None when it states none, or one that no path fits."""
    absolute = text.startswith("/")
    body = text[1:] if absolute else text.removeprefix("./")
    if not body or not text.isprintable() or unicodedata.normalize("NFC", text) != text:
        return None
    if len(text) > MAX_LENGTH or (not absolute and body.startswith("~")):
        return None
    segments: list[Glob | None] = []
    parts = body.split("/")
    for n, part in enumerate(parts):
        if part == "**":
            segments.append(None)
            if n == len(parts) - 1:
                segments.append(Glob(("", "")))
            continue
        found = starred(part)
        if found is None or "**" in part or part.rstrip(". ") != part or not part:
            return None
        segments.append(found)
    plain = "/".join(item.literal or "x" for item in segments if item is not None)
    if _ODD.search(("/" if absolute else "") + plain):
        return None
    return PathPattern(absolute=absolute, segments=tuple(segments))


def starred(text: str) -> Glob | None:
    """``text`` with its stars; a backslash takes the next character as it is."""
    literals, at = [""], 0
    while at < len(text):
        char = text[at]
        if char == "\\":
            at += 1
            if at == len(text):
                return None
            literals[-1] += text[at]
        elif char == "*":
            literals.append("")
        else:
            literals[-1] += char
        at += 1
    return Glob(tuple(literals))


def _split(path: str) -> list[str]:
    return [item for item in path.split("/") if item]


def _covers(segments: Sequence[Glob | None], names: Sequence[str]) -> Match:
    def one(pattern: Glob, name: str) -> Match:
        return Match.YES if pattern.matches(name) else Match.NO

    return sequence(segments, names, one)
