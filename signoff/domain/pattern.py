"""The text of a rule: a tool's name, or a name and what its calls must look like.

``Name``, ``Name(pattern)`` and ``mcp__server__*``. What the text in parentheses means depends on
the tool: a shell command, a path, or named arguments.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

from signoff.domain.glob import Glob, Match, fold
from signoff.domain.pathform import PathPattern, path_pattern, starred
from signoff.domain.shellpattern import ShellPattern, shell_pattern

Kind = Literal["shell", "path"]
MAX_LENGTH = 1024
NAME = re.compile(r"[A-Za-z0-9_.-]{1,128}")
_PARAMETER = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")
_SERVER = re.compile(r"mcp__[A-Za-z0-9.-]+(_[A-Za-z0-9.-]+)*")
#: A star in an allow never stands for what ends one value and begins another.
_CLOSED = frozenset("@,;<>()'\"|&$`\\")


@dataclass(frozen=True, slots=True, kw_only=True)
class Pattern:
    """One rule's text; of the readings of ``body`` the tool's kind picks one."""

    text: str
    name: Glob
    body: str | None = None
    shell: ShellPattern | None = None
    path: PathPattern | None = None
    arguments: tuple[tuple[str, Glob], ...] | None = None

    def names(self, tool: str, *, allow: bool) -> bool:
        """True when the rule is about the tool called ``tool``: by exact name, or by its server."""
        exact = self.name.literal
        if exact is None:
            prefix = self.name.literals[0]
            if not allow:
                return self.name.matches(tool)
            # A name that holds the separator again could pass for one of another server.
            return self.name.matches(tool) and "__" not in tool[len(prefix) :] and tool != prefix
        if exact == tool:
            return True
        return not allow and _SERVER.fullmatch(exact) is not None and tool.startswith(f"{exact}__")

    def reads(self, kind: Kind | None) -> bool:
        """True when the body states something about calls of a tool of that kind."""
        return self.body is None or self.reading(kind) is not None

    def reading(self, kind: Kind | None) -> ShellPattern | PathPattern | tuple[Any, ...] | None:
        """The body as a tool of that kind takes it."""
        if kind == "shell":
            return self.shell
        return self.path if kind == "path" else self.arguments


@lru_cache(maxsize=32_768)
def pattern_of(text: str) -> Pattern | None:
    """The pattern that ``text`` states; None when it states none. Total."""
    if len(text) > MAX_LENGTH:
        return None
    name, bracket, rest = text.partition("(")
    if bracket and not rest.endswith(")"):
        return None
    named = _name(name)
    if named is None or (bracket and named.literal is None):
        return None
    if not bracket:
        return Pattern(text=text, name=named)
    body = rest[:-1]
    if body == "*":
        return Pattern(text=text, name=named)
    if body != body.strip() or body.startswith(":"):
        return None
    found = Pattern(
        text=text,
        name=named,
        body=body,
        shell=shell_pattern(body),
        path=path_pattern(body),
        arguments=_arguments(body),
    )
    readable = found.shell or found.path or found.arguments
    return found if readable else None


def _name(text: str) -> Glob | None:
    if "*" not in text:
        return Glob((text,)) if NAME.fullmatch(text) else None
    if text == "*":
        return Glob(("", ""))
    if not text.startswith("mcp__") or NAME.fullmatch(text.replace("*", "x")) is None:
        return None
    return None if "**" in text else Glob(tuple(text.split("*")))


def _arguments(body: str) -> tuple[tuple[str, Glob], ...] | None:
    found: dict[str, Glob] = {}
    for item in re.split(r"(?<!\\),", body):
        name, equals, value = item.strip(" ").partition("=")
        glob = starred(value)
        if not equals or not _PARAMETER.fullmatch(name) or glob is None or name in found:
            return None
        if not value.isprintable():
            return None
        found[name] = glob
    return tuple(found.items())


def arguments_allow(pattern: tuple[tuple[str, Glob], ...], given: Mapping[str, Any]) -> bool:
    """True when each named argument is there, is a scalar, and is as the pattern says."""
    for name, glob in pattern:
        text = _scalar(given[name]) if name in given else None
        if text is None or not (glob.anything or glob.matches(text, star=_open)):
            return False
    return True


def arguments_forbid(
    pattern: tuple[tuple[str, Glob], ...], given: Mapping[str, Any], defaults: Mapping[str, Any]
) -> Match:
    """Whether the arguments may be as the pattern says; an omitted one is as its default."""
    found = Match.YES
    for name, glob in pattern:
        if name not in given and name not in defaults:
            return Match.NO
        value = given[name] if name in given else defaults[name]
        found = min(found, _holds(glob, value))
    return found


def _holds(glob: Glob, value: Any, depth: int = 0) -> Match:
    if isinstance(value, (list, dict)):
        if depth > 16:  # noqa: PLR2004 - deeper than any input that is reviewed
            return Match.MAYBE
        inner = value.values() if isinstance(value, dict) else value
        return max((_holds(glob, item, depth + 1) for item in inner), default=Match.NO)
    text = _scalar(value) or ""
    folded = glob.folded()
    return (
        Match.YES if folded.matches(fold(text)) or folded.matches(fold(text).strip()) else Match.NO
    )


def _scalar(value: Any) -> str | None:
    if isinstance(value, str):
        return value
    if value is None or isinstance(value, (bool, int, float)):
        return json.dumps(value)
    return None


def _open(char: str) -> bool:
    return char.isprintable() and not char.isspace() and char not in _CLOSED


def looks_like(text: str) -> str:
    """What a name reads as: names that differ and yet read alike are told apart by nobody."""
    kept = "".join(
        char
        for char in unicodedata.normalize("NFKD", text)
        if unicodedata.category(char) not in ("Cf", "Mn", "Cc") and not char.isspace()
    )
    return kept.casefold().replace("-", "_")
