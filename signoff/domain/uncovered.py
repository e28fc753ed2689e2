"""Why allow rules of a tool do not cover a call: what a dry run tells, never what decides."""

from __future__ import annotations

from collections.abc import Iterable

from signoff.domain.pattern import Pattern, pattern_of
from signoff.domain.rule import Rule, Verdict
from signoff.domain.subject import Subject

#: Rules that are told of; a person has little use for more.
MAX_TOLD = 3
_OTHER = "it states another call"


def uncovered(
    call: Subject, rules: Iterable[Rule], *, user_id: str | None, now_ms: int
) -> list[str]:
    """One sentence for each of the first allow rules about the call's tool that do not cover it.

    Those that state this call but for one thing come first. Rules of other users are not told of.
    """
    near: list[str] = []
    far: list[str] = []
    for rule in rules:
        why = _why(call, rule, user_id, now_ms)
        if why is not None:
            told = f"{rule.named} ({rule.tool}) does not cover it: {why}"
            (far if why == _OTHER else near).append(told)
    return [*near, *far][:MAX_TOLD]


def _why(call: Subject, rule: Rule, user_id: str | None, now_ms: int) -> str | None:
    """Why an allow that is about the tool does not cover the call; None for any other rule."""
    pattern = pattern_of(rule.tool) if rule.effect is Verdict.ALLOW else None
    if pattern is None or rule.user_id not in (None, user_id):
        return None
    if not pattern.names(call.tool, allow=True):
        return None
    if rule.user_id != user_id:
        return "it is for runs without a user"
    if not call.allowed_by(pattern):
        return _unstated(call, pattern)
    if rule.max_uses is not None and rule.uses >= rule.max_uses:
        return "it is used up"
    return "it has expired" if rule.spent(now_ms) else None


def _unstated(call: Subject, pattern: Pattern) -> str:
    if not pattern.reads(call.kind):
        return "its pattern says nothing about calls of this tool"
    if call.kind != "shell" or pattern.shell is None:
        return _OTHER
    if call.besides:
        return "the call has arguments besides its command"
    if not call.code.parsed:
        return "the command cannot be read"
    if call.code.literal is None:
        return (
            "the command is not one literal simple command (a separator, pipe, redirect, "
            "expansion, file name pattern, assignment or the like is in it)"
        )
    if not pattern.shell.states(call.code.literal):
        return _OTHER
    return "one of its words makes the command run or write something else than the rule says"
