"""What a server answers, as the text that a model reads."""

from __future__ import annotations

import json
from typing import Any

from mcp_types import (
    AudioContent,
    CallToolResult,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
    TextResourceContents,
)

from signoff.tooldef import render


def text_of(result: CallToolResult) -> str:
    """The texts, one below the other; what is no text is named, since models are given text only.

    Structured content is shown as JSON, unless a text says the same: as JSON, or as what servers
    wrap as ``{"result": text}`` because structured content was to be an object.
    """
    parts = [_part(block) for block in result.content]
    if result.structured_content is not None:
        shown = render(result.structured_content)
        if not any(_same(part, result.structured_content) for part in parts):
            parts.append(shown)
    return "\n".join(parts)


def _part(block: Any) -> str:
    if isinstance(block, TextContent):
        return render(block.text)
    if isinstance(block, EmbeddedResource) and isinstance(block.resource, TextResourceContents):
        return render(block.resource.text)
    if isinstance(block, ImageContent):
        return f"[an image is left out: {block.mime_type}]"
    if isinstance(block, AudioContent):
        return f"[a sound is left out: {block.mime_type}]"
    if isinstance(block, ResourceLink):
        return f"[a resource: {block.uri}]"
    return "[content that is no text is left out]"


def _same(part: str, value: Any) -> bool:
    if value == {"result": part}:
        return True
    try:
        return bool(json.loads(part) == value)
    except (ValueError, RecursionError):
        return False
