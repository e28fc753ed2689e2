"""The event stream of a run: bytes to frames, and when a stream that ends was whole."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from signoff.client.errors import StreamInterruptedError, UnexpectedAnswerError
from signoff.domain.frame import TERMINAL

_REOPENS = frozenset({"message_start", "content_block_start", "content_block_delta"})
_GATES = frozenset({"permission_request", "awaiting_approval"})
_OUTPUT = frozenset({"text-start", "text-delta"})
MAX_EVENT = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """One event of a stream; ``fields`` is all of it, ``id`` where to go on behind it."""

    type: str
    fields: Mapping[str, Any]
    id: str | None = None

    @property
    def text(self) -> str:
        """The piece of text of a ``text-delta``; empty for any other."""
        found = self.fields.get("delta") if self.type == "text-delta" else None
        return found if isinstance(found, str) else ""


class Reading:
    """Reads one stream, over as many connections as it takes; total over whatever arrives."""

    #: What chooses the format.
    query: ClassVar[Mapping[str, str]] = {}

    def __init__(self, last_event_id: str | None = None) -> None:
        self.last_event_id = last_event_id
        self._rest = b""
        self._event: list[bytes] = []
        self._size = 0
        self._event_id: str | None = None
        self._over = False
        #: Request id to call id of the gates that were seen to open and not to close.
        self._open: dict[str, str | None] = {}

    @property
    def whole(self) -> bool:
        """True when the stream may end here: the turn is over, or waits at a gate."""
        return self._over or bool(self._open)

    def headers(self) -> dict[str, str]:
        """What the next connection has to say."""
        self._rest, self._event, self._size = b"", [], 0
        self._event_id = self.last_event_id
        found = {"accept": "text/event-stream"}
        if self.last_event_id is not None:
            found["last-event-id"] = self.last_event_id
        return found

    def interrupted(self) -> StreamInterruptedError:
        """The exception of a stream that broke off here."""
        msg = "the event stream broke off before the turn was over"
        return StreamInterruptedError(msg, last_event_id=self.last_event_id)

    def feed(self, chunk: bytes) -> Iterator[Frame]:
        """The frames that ``chunk`` completes; raises UnexpectedAnswerError beyond all bounds."""
        self._size += len(chunk)
        if self._size > MAX_EVENT:
            raise UnexpectedAnswerError("an event of the stream is too large")
        lines = (self._rest + chunk).split(b"\n")
        self._rest = lines.pop()
        for line in lines:
            found = self._line(line.removesuffix(b"\r"))
            if found is not None:
                yield found

    def _line(self, line: bytes) -> Frame | None:
        if line:
            name, _, value = line.partition(b":")
            value = value.removeprefix(b" ")
            if name == b"data":
                self._event.append(value)
            elif name == b"id" and b"\0" not in value:
                self._event_id = value.decode("utf-8", "replace")
            return None
        raw, self._event = b"\n".join(self._event), []
        self._size = len(self._rest)
        if not raw:
            return None
        if self._event_id is not None:
            self.last_event_id = self._event_id
        if raw == b"[DONE]":
            self._over = True
            return None
        return self._frame(raw)

    def _frame(self, raw: bytes) -> Frame | None:
        try:
            fields = json.loads(raw)
        except (ValueError, RecursionError):
            return None
        if not isinstance(fields, dict) or not isinstance(fields.get("type"), str):
            return None
        found = Frame(type=fields["type"], fields=fields, id=self._event_id)
        self._note(found)
        return found

    def _note(self, frame: Frame) -> None:
        kind, request_id = frame.type, frame.fields.get("request_id")
        if kind in TERMINAL:
            self._over = True
        elif kind in _REOPENS:
            self._over = False
        elif kind in _GATES and isinstance(request_id, str):
            call = frame.fields.get("tool_use_id")
            self._open[request_id] = call if isinstance(call, str) else None
        elif kind == "permission_resolved" and isinstance(request_id, str):
            self._open.pop(request_id, None)
        elif kind == "tool-result-end":
            call = frame.fields.get("toolCallId")
            self._open = {gate: at for gate, at in self._open.items() if at != call}
        elif kind in _OUTPUT:
            self._open.clear()


class EventReading(Reading):
    """Reads a stream of AgentScope's events."""

    query: ClassVar[Mapping[str, str]] = {"format": "agentscope"}

    def _note(self, frame: Frame) -> None:
        kind = frame.type
        if kind in ("REPLY_START", "REPLY_END"):
            self._over = kind == "REPLY_END"
            self._open.clear()
        elif kind.startswith("REQUIRE_"):
            self._open.update(dict.fromkeys(_called(frame.fields.get("tool_calls"))))
        elif kind == "TOOL_RESULT_END":
            self._open.pop(str(frame.fields.get("tool_call_id")), None)
        elif kind == "MODEL_CALL_START":
            self._open.clear()


def _called(calls: Any) -> Iterator[str]:
    for call in calls if isinstance(calls, list) else ():
        if isinstance(call, dict):
            yield str(call.get("id"))
