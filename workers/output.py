"""The structured answer that a run owes: asked for as a tool, checked, asked for again."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from signoff.agents import Step, ToolSpec
from signoff.answertext import value_of
from signoff.canonical import canonical
from signoff.domain.call import TURN_ENDED
from signoff.domain.error import InvalidFieldError, NotCanonicalError
from signoff.domain.frame import call_frames, result_frames
from signoff.domain.jsontext import compact
from signoff.domain.message import Message, Text, ToolResult, ToolUse
from signoff.domain.output import (
    ACCEPTED,
    ALONE,
    ASKED_BY,
    NO_OBJECT,
    OUTPUT_TOOL,
    REPEATS,
    correction,
    failure_text,
)
from signoff.shape import shape_of
from signoff.store.records import RunRecord
from workers.judging import storable

DESCRIPTION = (
    "Give the final answer of the task in the required form. Call it once, alone, when everything "
    "else is done."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnAnswer:
    """What a reply comes to as the answer of its turn; nothing is said of an ordinary step."""

    #: The accepted answer; with it the turn is completed.
    found: dict[str, Any] | None = None
    #: Why the turn fails.
    failure: str | None = None
    #: The calls of the reply, where the turn ends with it, and what the model sees of them.
    uses: tuple[ToolUse, ...] = ()
    results: tuple[ToolResult, ...] = ()
    #: Why calls of a turn that goes on are refused, by call id.
    refusals: Mapping[str, str] = field(default_factory=dict)
    #: What is said to a model that answered in words.
    request: str | None = None

    @property
    def last(self) -> bool:
        """Whether the turn ends with the reply."""
        return self.found is not None or self.failure is not None

    def messages(self, answered: Message) -> list[Message]:
        """What follows the reply in the history: no call stays without a result."""
        at: dict[str, Any] = {"turn": answered.turn, "step": answered.step, "at_ms": answered.at_ms}
        if self.results:
            return [Message(role="tool", blocks=self.results, **at)]
        if self.request is not None:
            extra = {"by": ASKED_BY}
            return [Message(role="user", blocks=(Text(self.request),), extra=extra, **at)]
        return []

    def frames(self) -> list[bytes]:
        """The frames of the calls that ended with the turn."""
        shown: list[bytes] = []
        for use in self.uses:
            shown.extend(call_frames(use.id, use.name, compact(use.input)))
        for result in self.results:
            told = {"state": result.state, "content": result.content}
            shown.extend(result_frames(result.tool_use_id, told))
        return shown


def output_spec(run: RunRecord) -> ToolSpec | None:
    """The tool that takes the run's answer; None when any words are an answer."""
    schema = run.config.get("output_schema")
    if schema is None:
        return None
    return ToolSpec(name=OUTPUT_TOOL, description=DESCRIPTION, input_schema=schema)


def answer_of(run: RunRecord, step: Step, history: Sequence[Message]) -> TurnAnswer:
    """What ``step`` comes to; ``history`` is what was said before it.

    An answer that does not fit is asked for again, REPEATS times in a turn; then the turn fails.
    In words it is asked for of those agents only that do not take it for a new turn.
    """
    schema = run.config.get("output_schema")
    outputs = [use for use in step.calls if use.name == OUTPUT_TOOL]
    if schema is None or (step.calls and not outputs):
        return TurnAnswer()
    given = outputs[0].input if outputs else value_of(step.text)
    value, wrong = _checked(schema, given)
    if len(step.calls) > 1:
        wrong = ALONE
    uses = tuple(map(storable, step.calls))
    if not wrong:
        accepted = tuple(ToolResult(use.id, use.name, "success", ACCEPTED) for use in outputs)
        return TurnAnswer(found=value, uses=uses, results=accepted)
    if _asked_again(history, run.turn) >= REPEATS or not (outputs or step.correctable):
        results = tuple(
            ToolResult(use.id, use.name, "error", wrong)
            if use.name == OUTPUT_TOOL
            else ToolResult(use.id, use.name, "interrupted", TURN_ENDED)
            for use in step.calls
        )
        return TurnAnswer(failure=failure_text(wrong), uses=uses, results=results)
    if outputs:
        return TurnAnswer(refusals={use.id: wrong for use in outputs})
    return TurnAnswer(request=correction(wrong))


def _checked(schema: Mapping[str, Any], value: Any) -> tuple[dict[str, Any], str]:
    """The value as it can be kept, or why it does not do."""
    if not isinstance(value, dict):
        return {}, NO_OBJECT
    try:
        canonical(value)
        misfit = shape_of(schema, field="output_schema").misfit(value)
    except (NotCanonicalError, InvalidFieldError) as error:
        # The schema was read when the run was created, maybe by a release that took more.
        return {}, f"The output cannot be checked: {error.message}."
    if misfit is not None:
        return {}, f"Invalid output: {misfit}."
    return dict(json.loads(compact(value))), ""


def _asked_again(history: Sequence[Message], turn: int) -> int:
    """How often this turn's answer was refused; at most once a step."""
    refused = set[int]()
    for message in reversed(history):
        if message.turn != turn:
            break
        if message.extra.get("by") == ASKED_BY or any(
            isinstance(block, ToolResult) and block.name == OUTPUT_TOOL and block.state == "error"
            for block in message.blocks
        ):
            refused.add(message.step)
    return len(refused)
