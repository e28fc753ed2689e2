"""How runs, calls and rules are named and shown to clients that speak AgentScope's events."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from signoff.domain import question
from signoff.domain.gate import ASK_TOOL, PLAN_TOOL, GateKind
from signoff.domain.jsontext import compact, sorted_compact

#: What those clients know as the tool by which an agent asks its user.
ASK_USER = "AskUser"
#: Calls of these are shown as calls of ``AskUser``.
ASKING = frozenset({ASK_TOOL, PLAN_TOOL, ASK_USER})
#: Longer headers are refused by those clients; a plan's would be.
MAX_HEADER, PLAN_HEADER = 12, "Plan"
_PATTERNED = re.compile(r"([^()]+)\((.*)\)", re.DOTALL)
_REPLY = re.compile(r"run_([1-9][0-9]{0,14})_([1-9][0-9]{0,8})")


def reply_id(run_id: int, turn: int) -> str:
    """The id of the reply, and of its message, that a turn of a run amounts to."""
    return f"run_{run_id}_{turn}"


def turn_of(run_id: int, reply: str) -> int | None:
    """The turn that ``reply`` names; None for what is no reply of that run."""
    found = _REPLY.fullmatch(reply)
    return int(found[2]) if found is not None and int(found[1]) == run_id else None


def shown_name(kind: GateKind, tool: str) -> str:
    """The tool name that a gate's call is shown under."""
    return ASK_USER if kind.answered else tool


def ask_input(tool_input: Any) -> dict[str, Any] | None:
    """Questions, or a plan, as the input of ``AskUser``; None for what is neither."""
    if not isinstance(tool_input, dict):
        return None
    plan = tool_input.get("plan")
    questions = (
        question.plan_questions(plan) if isinstance(plan, str) else tool_input.get("questions")
    )
    if not isinstance(questions, list):
        return None
    try:
        return {"questions": [_question(item) for item in questions]}
    except (AttributeError, LookupError, TypeError):
        return None


def shown_input(kind: GateKind, tool_input: Mapping[str, Any], asked: str) -> str:
    """The input of a gate's call as JSON text; ``asked`` is what the model wrote, if it is known.

    That text is taken as it is, unless the gate is for another input by now.
    """
    if kind.answered:
        shown = ask_input(tool_input)
        return compact(tool_input if shown is None else shown)
    try:
        if asked and sorted_compact(json.loads(asked)) == sorted_compact(tool_input):
            return asked
    except ValueError:
        pass
    return sorted_compact(tool_input)


def permission_rule(rule: Mapping[str, Any]) -> dict[str, Any]:
    """A rule that a gate suggests, with its pattern apart from the name."""
    tool = str(rule["tool"])
    found = _PATTERNED.fullmatch(tool)
    return {
        "tool_name": tool if found is None else found[1],
        "rule_content": None if found is None else found[2],
        "behavior": str(rule["effect"]),
        "source": "suggested",
    }


def suggested_rule(tool_name: str, rule_content: str | None, behavior: str) -> dict[str, str]:
    """The same the other way round."""
    tool = tool_name if rule_content is None else f"{tool_name}({rule_content})"
    return {"tool": tool, "effect": behavior}


def _question(item: Mapping[str, Any]) -> dict[str, Any]:
    multi = item.get("multiSelect", item.get("multi_select", False))
    header = str(item.get("header", ""))
    shown = PLAN_HEADER if header == question.PLAN_HEADER else header[:MAX_HEADER]
    found = {"question": item["question"], "header": shown}
    if "context" in item:
        found["context"] = item["context"]
    return {**found, "options": [_option(o) for o in item["options"]], "multi_select": multi}


def _option(option: Mapping[str, Any]) -> dict[str, Any]:
    found = {"label": option["label"], "description": option.get("description", "")}
    if "preview" in option:
        found["preview"] = option["preview"]
    return found
