"""One tool call as rules see it; a command or a path in it is read when a rule asks for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from signoff.domain.glob import Match
from signoff.domain.jsontext import size_of
from signoff.domain.pathform import PathForms, Resolve, path_forms
from signoff.domain.pattern import Kind, Pattern, arguments_allow, arguments_forbid
from signoff.domain.shellcode import UNREAD, ShellCode, literal_words

#: What all rules together may compare for one call: about a second at worst.
MAX_WORK = 2_000_000
#: A value of an argument is as much work as so many words.
_VALUE = 4
ReadShell = Callable[[str], ShellCode]


@dataclass(frozen=True, slots=True, kw_only=True)
class Readers:
    """What reads commands, and what looks where paths lead."""

    shell: ReadShell
    resolve: Resolve


def plain_shell(text: str) -> ShellCode:
    """A reading without a grammar: one literal command is known, all else is unread."""
    words = literal_words(text)
    if words is None:
        return UNREAD
    return ShellCode(literal=words, parts=(), opaque=True, parsed=True)


#: Readers that look at nothing but the text.
TEXT_ONLY = Readers(shell=plain_shell, resolve=lambda path: path)


class Subject:
    """A call of ``tool``; ``kind`` and ``parameter`` say what patterns are matched against."""

    def __init__(
        self,
        tool: str,
        arguments: Mapping[str, Any],
        *,
        kind: Kind | None = None,
        parameter: str | None = None,
        defaults: Mapping[str, Any] | None = None,
        digest: str = "",
        readers: Readers = TEXT_ONLY,
    ) -> None:
        self.tool = tool
        self.arguments = arguments
        self.kind: Kind | None = kind
        self.digest = digest
        self._parameter = parameter
        self._defaults = defaults or {}
        self._readers = readers
        self._work = 0

    @property
    def text(self) -> str | None:
        """The command or the path of the call."""
        found = self.arguments.get(self._parameter) if self._parameter else None
        return found if isinstance(found, str) else None

    @property
    def besides(self) -> bool:
        """True when there are arguments besides the command, or no command."""
        return set(self.arguments) != {self._parameter}

    @cached_property
    def code(self) -> ShellCode:
        """What the command runs."""
        return UNREAD if self.text is None else self._readers.shell(self.text)

    @cached_property
    def forms(self) -> PathForms:
        """What the path names."""
        return path_forms(self.text or "", self._readers.resolve)

    def allowed_by(self, pattern: Pattern) -> bool:
        """True when the pattern states this very call."""
        if not pattern.names(self.tool, allow=True):
            return False
        if pattern.body is None:
            return True
        if self.kind == "shell":
            # Another argument, such as an environment, can change what the command does.
            shell = None if self.besides else pattern.shell
            return shell is not None and shell.allows(self.code)
        if self.kind == "path":
            if pattern.path is None or self._spent(pattern.path.work(self.forms)):
                return False
            return pattern.path.allows(self.forms)
        arguments = pattern.arguments
        return arguments is not None and arguments_allow(arguments, self.arguments)

    def touched_by(self, pattern: Pattern) -> Match:
        """Whether the call may do what the pattern states; what cannot be read may."""
        if not pattern.names(self.tool, allow=False):
            return Match.NO
        if pattern.body is None:
            return Match.YES
        if not pattern.reads(self.kind):
            # It was stated for a tool of another kind, so nobody knows what it means for this one.
            return Match.MAYBE
        if self.kind == "shell" and pattern.shell is not None:
            spent = self._spent(pattern.shell.work(self.code))
            return Match.MAYBE if spent else pattern.shell.forbids(self.code)
        if self.kind == "path" and pattern.path is not None:
            spent = self._spent(pattern.path.work(self.forms))
            return Match.MAYBE if spent else pattern.path.forbids(self.forms)
        arguments = pattern.arguments or ()
        if self._spent(sum(_VALUE * self._sizes.get(name, 1) for name, _ in arguments)):
            return Match.MAYBE
        return arguments_forbid(arguments, self.arguments, self._defaults)

    @cached_property
    def _sizes(self) -> Mapping[str, int]:
        return {name: size_of(value) for name, value in self.arguments.items()}

    def _spent(self, work: int) -> bool:
        self._work += work
        return self._work > MAX_WORK

    @property
    def unread(self) -> bool:
        """True for a command that the grammar does not take, and for a call that is too much."""
        return self._work > MAX_WORK or (self.kind == "shell" and not self.code.parsed)
