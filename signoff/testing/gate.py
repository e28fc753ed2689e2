"""The digest of a gate as the service shows it."""

from __future__ import annotations

import hashlib
from typing import Any

from signoff.domain.jsontext import sorted_compact


def gate_digest(tool: str, tool_input: Any) -> str:
    """The digest that binds a call.

    The service's own, for inputs of text, whole numbers, booleans and null under ASCII keys; the
    RFC 8785 form of other numbers takes a package that the SDK does not need.
    """
    return hashlib.sha256(sorted_compact({"tool": tool, "input": tool_input}).encode()).hexdigest()
