"""Calls of declared tools as rules see them: read with the grammar of bash and the file system."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from signoff.domain.subject import Readers, Subject
from signoff.paths import resolve_path
from signoff.shell import read_shell
from signoff.tooldef import Tool

READERS = Readers(shell=read_shell, resolve=resolve_path)


def subject(
    name: str, tool: Tool | None, tool_input: Mapping[str, Any], *, digest: str = ""
) -> Subject:
    """The call of the tool called ``name``; a tool that is gone has no patterns."""
    if tool is None:
        return Subject(name, tool_input, digest=digest)
    properties: Mapping[str, Any] = tool.input_schema.get("properties") or {}
    return Subject(
        name,
        tool_input,
        kind=tool.patterns,
        parameter=tool.pattern_parameter,
        defaults={key: of["default"] for key, of in properties.items() if "default" in of},
        digest=digest,
        readers=READERS,
    )
