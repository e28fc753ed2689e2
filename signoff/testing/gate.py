"""A gate and its results as the service shows them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

from signoff.domain.jsontext import compact, sorted_compact
from signoff.domain.message import ToolResult
from signoff.domain.subject import Subject


def gate_digest(tool: str, tool_input: Any) -> str:
    """The digest that binds a call.

    The service's own, for inputs of text, whole numbers, booleans and null under ASCII keys; the
    RFC 8785 form of other numbers takes a package that the SDK does not need.
    """
    return hashlib.sha256(sorted_compact({"tool": tool, "input": tool_input}).encode()).hexdigest()


def shown_call(tool: str, tool_input: Mapping[str, Any]) -> Subject:
    """The call as rules see it."""
    return Subject(tool, tool_input, digest=gate_digest(tool, dict(tool_input)))


def results_text(results: Iterable[ToolResult]) -> str:
    """The results of a step as a script may quote them."""
    return compact(
        [
            {
                "tool_use_id": item.tool_use_id,
                "name": item.name,
                "state": item.state,
                "content": item.content,
            }
            for item in results
        ]
    )
