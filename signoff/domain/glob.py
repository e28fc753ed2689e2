"""Text with stars, as rules state it: compared exactly to allow, loosely to ask and deny."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import TypeVar

P = TypeVar("P")
T = TypeVar("T")


class Match(IntEnum):
    """Whether a pattern covers a call; what cannot be read may be covered."""

    NO = 0
    MAYBE = 1
    YES = 2


@dataclass(frozen=True, slots=True)
class Glob:
    """Literal texts with a star between each two of them; no star is one literal text."""

    literals: tuple[str, ...]

    @property
    def literal(self) -> str | None:
        """The text itself, if it has no star."""
        return self.literals[0] if len(self.literals) == 1 else None

    @property
    def anything(self) -> bool:
        """True for a star and nothing else."""
        return self.literals == ("", "")

    def matches(self, text: str, *, star: Callable[[str], bool] | None = None) -> bool:
        """True when ``text`` is the literals with any texts between them, in linear time a star.

        ``star`` says which characters a star may stand for; None: all.
        """
        first, *rest = self.literals
        if not rest:
            return text == first
        last = rest.pop()
        if len(text) < len(first) + len(last) or not text.startswith(first):
            return False
        if not text.endswith(last):
            return False
        at, end = len(first), len(text) - len(last)
        gaps: list[str] = []
        for part in rest:
            found = text.find(part, at, end)
            if found < 0:
                return False
            gaps.append(text[at:found])
            at = found + len(part)
        gaps.append(text[at:end])
        return star is None or all(star(char) for gap in gaps for char in gap)

    def folded(self) -> Glob:
        """The same for texts that were folded."""
        return Glob(tuple(fold(part) for part in self.literals))


def fold(text: str) -> str:
    """``text`` without what merely looks different: case, form, and invisible characters."""
    if text.isascii():
        return text.lower()
    shown = "".join(
        c for c in unicodedata.normalize("NFKC", text) if unicodedata.category(c) != "Cf"
    )
    return unicodedata.normalize("NFC", shown.casefold())


def sequence(
    pattern: Sequence[P | None], items: Sequence[T], one: Callable[[P, T], Match]
) -> Match:
    """How ``items`` match ``pattern``, in which None stands for any number of items."""
    # row[i]: the best match of the pattern so far with the first i items; what is NO is left out.
    row = {0: Match.YES}
    for part in pattern:
        new: dict[int, Match] = {}
        if part is None:
            best = Match.NO
            for i in range(min(row), len(items) + 1):
                best = max(best, row.get(i, Match.NO))
                new[i] = best
        else:
            for i, so_far in row.items():
                found = min(so_far, one(part, items[i])) if i < len(items) else Match.NO
                if found is not Match.NO:
                    new[i + 1] = found
        if not new:
            return Match.NO
        row = new
    return row.get(len(items), Match.NO)
