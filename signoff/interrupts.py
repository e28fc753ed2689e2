"""What a LangGraph node passes to ``interrupt()`` so that Signoff asks, runs a tool or waits.

Plain JSON in both directions, so a node needs nothing of ours at run time and tests without us:
``answer = interrupt(approve("refund", {"order": "A-1"}))``. docs/agents.md says what comes back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NotRequired, TypedDict

__all__ = ["KEY", "Answer", "approve", "ask", "external", "plan"]

#: A value with this key is read by Signoff; any other is shown to people as it is.
KEY = "signoff"


class Answer(TypedDict):
    """What ``interrupt()`` returns for each of these."""

    state: Literal["success", "error", "denied", "interrupted"]
    #: The result of the tool, or why there is none, as a model may read it.
    content: str
    #: False if it was refused before anything ran.
    approved: bool
    #: The input that ran, where a reviewer changed it.
    input: NotRequired[dict[str, Any]]
    #: To a question: its text with the label, or the labels, that were chosen.
    answers: NotRequired[dict[str, str | list[str]]]


def approve(tool: str, tool_input: Mapping[str, Any], *, insist: bool = False) -> dict[str, Any]:
    """Asks a person for a tool of the deployment, which then runs once, outside the graph.

    An allow rule or autonomous mode may answer for the person; not if the node has to ``insist``.
    """
    return {KEY: "tool", "tool": tool, "input": dict(tool_input), "insist": insist}


def external(tool: str, tool_input: Mapping[str, Any]) -> dict[str, Any]:
    """Waits for a result that somebody else supplies; nothing of the deployment runs for it.

    A tool that is declared as external brings its schemas; any other name is only shown.
    """
    return {KEY: "external", "tool": tool, "input": dict(tool_input)}


def ask(
    question: str, options: Sequence[str], *, header: str = "Question", multi: bool = False
) -> dict[str, Any]:
    """Asks a person to choose between two to four ``options``, or to write something else."""
    item = {
        "question": question,
        "header": header,
        "multiSelect": multi,
        "options": [{"label": label} for label in options],
    }
    return {KEY: "question", "questions": [item]}


def plan(text: str) -> dict[str, Any]:
    """Presents a plan; only a run in plan mode that has none yet takes one."""
    return {KEY: "plan", "plan": text}
