"""Frames of a run's event stream: a view for watchers, written beside the durable facts."""

from __future__ import annotations

from typing import Any

from signoff.domain.jsontext import ascii_compact


def frame(kind: str, **fields: Any) -> bytes:
    """One frame as ASCII JSON, so that no byte of it can end a line of an event stream."""
    return ascii_compact({"type": kind, **fields}).encode()
