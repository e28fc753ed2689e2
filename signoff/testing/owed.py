"""The structured answer that a run of the fake owes: an object, whatever its schema says."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from signoff.answertext import value_of
from signoff.domain.call import TURN_ENDED
from signoff.domain.message import ToolResult, ToolUse
from signoff.domain.output import ACCEPTED, ALONE, NO_OBJECT, OUTPUT_TOOL


def owed(calls: Sequence[ToolUse], text: str) -> tuple[dict[str, Any] | None, str]:
    """The answer that a reply gives, or what is wrong with it; neither of an ordinary step."""
    outputs = [use for use in calls if use.name == OUTPUT_TOOL]
    if calls and not outputs:
        return None, ""
    if len(calls) > 1:
        return None, ALONE
    value = outputs[0].input if outputs else value_of(text)
    return (value, "") if isinstance(value, dict) else (None, NO_OBJECT)


def closed(calls: Sequence[ToolUse], wrong: str) -> list[ToolResult]:
    """The results of the calls of a reply with which the turn ends."""
    results: list[ToolResult] = []
    for use in calls:
        if use.name != OUTPUT_TOOL:
            results.append(ToolResult(use.id, use.name, "interrupted", TURN_ENDED))
        elif wrong:
            results.append(ToolResult(use.id, use.name, "error", wrong))
        else:
            results.append(ToolResult(use.id, use.name, "success", ACCEPTED))
    return results
