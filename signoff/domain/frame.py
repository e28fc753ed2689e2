"""Frames of a run's event stream: a view for watchers, written beside the durable facts."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from signoff.domain.jsontext import ascii_compact

#: Frames behind which a turn has ended.
TERMINAL = frozenset({"done", "error", "cancelled"})
_GATES = frozenset({"permission_request", "awaiting_approval"})
_OUTPUT = frozenset({"text-start", "text-delta"})
_PREFIX = b'{"type":"'
#: Frames that only the event formats need: watchers of the wire format are not shown them.
TURN_START, MODEL_START, MODEL_END = "turn-start", "model-start", "model-end"
HIDDEN = frozenset({TURN_START, MODEL_START, MODEL_END})

#: The place of one entry of a run's stream; one entry holds the frames of one move.
Place = tuple[int, int]
START: Place = (0, 0)


def frame(kind: str, /, **fields: Any) -> bytes:
    """One frame as ASCII JSON, so that no byte of it can end a line of an event stream."""
    return ascii_compact({"type": kind, **fields}).encode()


def kind_of(raw: bytes) -> str:
    """The type of a frame made by ``frame``; empty for anything else."""
    if not raw.startswith(_PREFIX):
        return ""
    return raw[len(_PREFIX) :].partition(b'"')[0].decode("ascii", "replace")


def gate_frames(request: Mapping[str, Any], tool_use_id: str) -> list[bytes]:
    """The frames of one gate that opens; ``request`` is what its event tells of it."""
    ids = {"request_id": request["request_id"], "tool_use_id": tool_use_id}
    names = ("kind", "tool_name", "tool_input", "digest", "suggested_rules")
    shown = {name: request[name] for name in names}
    return [frame("permission_request", **ids, **shown), frame("awaiting_approval", **ids)]


def call_frames(tool_use_id: str, tool: str, input_json: str) -> list[bytes]:
    """The frames of one call with its whole input."""
    return [
        frame("tool-call-start", toolCallId=tool_use_id, toolName=tool),
        frame("tool-call-delta", toolCallId=tool_use_id, delta=input_json),
        frame("tool-call-end", toolCallId=tool_use_id),
    ]


def result_frames(tool_use_id: str, result: Mapping[str, str]) -> list[bytes]:
    """The frames of one call's result."""
    return [
        frame("tool-result-start", toolCallId=tool_use_id),
        frame(
            "tool-result-end",
            toolCallId=tool_use_id,
            result=result["content"],
            state=result["state"],
        ),
    ]


@dataclass(frozen=True, slots=True)
class Entry:
    """What one move added to a run's stream."""

    place: Place
    frames: tuple[bytes, ...]


class Progress:
    """What the frames that a watcher was shown say of the run: the gates that it saw open.

    A watcher of the wire format follows the last opened gate only, and believes that a body
    without an end was cut off unless that gate is open.
    """

    def __init__(self) -> None:
        self._open: dict[str, str] = {}  # request id to tool use id, the last opened last
        self._followed: str | None = None

    def note(self, kind: str, raw: bytes) -> None:
        """Takes the next frame."""
        if kind in _GATES:
            shown = json.loads(raw)
            self._followed = shown["request_id"]
            self._open.pop(shown["request_id"], None)
            self._open[shown["request_id"]] = shown["tool_use_id"]
        elif kind == "permission_resolved":
            self._close(json.loads(raw)["request_id"])
        elif kind == "tool-result-end" and self._open:
            call = json.loads(raw)["toolCallId"]
            for request in [item for item, use in self._open.items() if use == call]:
                self._close(request)
        elif kind in TERMINAL or kind in _OUTPUT:
            # The model speaks only when every call of its step is settled.
            self._open.clear()
            self._followed = None

    @property
    def parked(self) -> bool:
        """Whether a gate that was shown is open."""
        return bool(self._open)

    def restated(self) -> bytes | None:
        """A frame that shows an open gate again, if the one that watchers follow is closed."""
        if not self._open or self._followed in self._open:
            return None
        request, use = list(self._open.items())[-1]
        return frame("awaiting_approval", request_id=request, tool_use_id=use)

    def _close(self, request: str) -> None:
        self._open.pop(request, None)
        if self._followed == request:
            self._followed = None
