"""The frames of a run's stream as AgentScope's events, in its order."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from typing import Any

from signoff.domain.agentscope import (
    ASK_USER,
    ASKING,
    ask_input,
    permission_rule,
    reply_id,
    shown_input,
    shown_name,
)
from signoff.domain.call import CANCELLED, TURN_ENDED
from signoff.domain.frame import MODEL_END, MODEL_START, TURN_START, Place, kind_of
from signoff.domain.gate import GateKind
from signoff.domain.jsontext import compact
from signoff.domain.run import MAX_TURNS_EXCEEDED

Shown = dict[str, Any]
_Step = Callable[[Shown], None]
#: What went wrong in a failed run, in AgentScope's words.
ERROR_TYPES: Mapping[str, str] = {
    "model_auth": "authentication",
    "model_rate_limit": "rate_limit",
    "model_overloaded": "upstream",
    "model_server": "upstream",
    "model_context": "invalid_request",
    "step_crashed": "internal",
}
_CONFIRMED = frozenset({GateKind.TOOL_APPROVAL, GateKind.OUTCOME_UNKNOWN})


class _Call:
    """One call of the current step, as far as it was shown."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.text = ""
        self.ended = False
        #: Its TOOL_RESULT_START was shown, and whether anything of the result's text was.
        self.opened = False
        self.said = False

    @property
    def asks(self) -> bool:
        return self.name in ASKING

    @property
    def shown(self) -> str:
        return ASK_USER if self.asks else self.name


class Translator:
    """Turns one run's frames into events; fed from the start of the stream, in order.

    The same frames always give the same events with the same ids and times, so a client that is
    shown some of them twice can tell. ``turn`` and ``model`` are used where the frames do not
    say. Total over frames: what it does not know gives no events.
    """

    def __init__(self, *, run_id: int, name: str, model: str = "", turn: int = 1) -> None:
        self._run_id = run_id
        self._name = name
        self._model = model
        self._turn = turn
        self._open = False
        self._over = False
        self._calling = False
        #: The last step that was committed.
        self._step = 0
        self._blocks: dict[str, None] = {}
        #: Unfinished calls by id; those of the current step only.
        self._calls: dict[str, _Call] = {}
        #: Results that stand among the calls of their step wait for the end of the model call.
        self._held: list[tuple[_Step, Shown]] = []
        self._out: list[Shown] = []
        self._steps: Mapping[str, _Step] = {
            TURN_START: self._turn_start,
            MODEL_START: self._model_start,
            MODEL_END: self._model_end,
            "text-start": self._text_start,
            "text-delta": self._text_delta,
            "text-end": self._text_end,
            "tool-call-start": self._call_start,
            "tool-call-delta": self._call_delta,
            "tool-call-end": self._call_end,
            "permission_request": self._gate,
            "tool-result-start": partial(self._hold, self._result_start),
            "tool-result-delta": partial(self._hold, self._result_delta),
            "tool-result-end": partial(self._hold, self._result_end),
            "done": self._done,
            "error": self._error,
            "cancelled": self._cancelled,
        }

    def feed(self, place: Place, n: int, raw: bytes) -> list[Shown]:
        """The events of frame ``n`` of the entry at ``place``."""
        kind = kind_of(raw)
        step = self._steps.get(kind)
        if step is None or (self._over and kind != TURN_START):
            return []
        # Of a release that wrote less: what was understood of it stands.
        with suppress(AttributeError, LookupError, TypeError, ValueError):
            step(json.loads(raw))
        events, self._out = self._out, []
        at = _naive(place[0])
        for k, event in enumerate(events):
            name = f"signoff:{self._run_id}:{place[0]}-{place[1]}-{n}.{k}"
            event["id"] = uuid.uuid5(uuid.NAMESPACE_OID, name).hex
            event["created_at"] = at
            for call in event.get("tool_calls", ()):
                call["created_at"] = at
        return events

    # -- replies -------------------------------------------------------------------------------

    def _turn_start(self, frame: Shown) -> None:
        turn = int(frame["turn"])
        if self._open:
            self._cancelled({})
        self._turn, self._over = turn, False
        self._reply()

    def _reply(self) -> None:
        if not self._open:
            self._open = True
            self._add(
                "REPLY_START", session_id=str(self._run_id), name=self._name, role="assistant"
            )

    def _done(self, _frame: Shown) -> None:
        self._end("completed")

    def _cancelled(self, _frame: Shown) -> None:
        self._close_model(finished="interrupted")
        self._interrupt(CANCELLED)
        self._end("interrupted")

    def _error(self, frame: Shown) -> None:
        code = str(frame.get("error_code") or "")
        self._close_model(finished="interrupted")
        self._interrupt(TURN_ENDED)
        if code == MAX_TURNS_EXCEEDED:
            self._reply()
            self._add("EXCEED_MAX_ITERS", name=self._name)
            self._end("exceed_max_iters")
            return
        message = str(frame.get("error") or code)
        self._end("error", {"type": ERROR_TYPES.get(code, "unknown"), "message": message})

    def _end(self, reason: str, error: dict[str, str] | None = None) -> None:
        self._reply()
        self._close_model()
        self._drop_calls()
        self._add("REPLY_END", session_id=str(self._run_id), finished_reason=reason, error=error)
        self._forget()
        self._open, self._over = False, True

    def _forget(self) -> None:
        self._calling = False
        self._blocks.clear()
        self._calls.clear()
        self._held.clear()

    # -- the model -----------------------------------------------------------------------------

    def _model_start(self, frame: Shown) -> None:
        step = frame.get("step")
        if isinstance(step, int) and step <= self._step:
            return  # of a worker that has lost the run: another one has committed the step
        self._reply()
        # Still open: the worker of that call is gone, and the call is made again.
        self._close_model(finished="interrupted")
        self._drop_calls()
        self._calling = True
        self._add("MODEL_CALL_START", model_name=str(frame.get("model") or self._model))

    def _speaking(self) -> None:
        if not self._calling:
            self._model_start({})

    def _model_end(self, frame: Shown) -> None:
        self._speaking()
        self._close_model(frame.get("usage"))
        step = frame.get("step")
        if isinstance(step, int):
            self._step = step

    def _close_model(self, usage: Any = None, finished: str = "completed") -> None:
        if not self._calling:
            return
        self._calling = False
        for block in self._blocks:
            self._add("TEXT_BLOCK_END", block_id=block, text=None)
        self._blocks.clear()
        for call_id in self._calls:
            self._add("TOOL_CALL_END", tool_call_id=call_id)
        self._add(
            "MODEL_CALL_END",
            input_tokens=_count(usage, "input_tokens"),
            output_tokens=_count(usage, "output_tokens"),
            cache_input_tokens=_count(usage, "cache_read_tokens"),
            cache_creation_input_tokens=_count(usage, "cache_creation_tokens"),
            finished_reason=finished,
        )
        held, self._held = self._held, []
        for step, frame in held:
            step(frame)

    def _text_start(self, frame: Shown) -> None:
        if self._calls and not self._calling:
            return  # of a worker that has lost the run: its step was committed by another
        self._speaking()
        block = str(frame["id"])
        if block not in self._blocks:
            self._blocks[block] = None
            self._add("TEXT_BLOCK_START", block_id=block)

    def _text_delta(self, frame: Shown) -> None:
        delta = str(frame["delta"])
        self._text_start(frame)
        if self._calling:
            self._add("TEXT_BLOCK_DELTA", block_id=str(frame["id"]), delta=delta)

    def _text_end(self, frame: Shown) -> None:
        block = str(frame["id"])
        if block in self._blocks:
            del self._blocks[block]
            self._add("TEXT_BLOCK_END", block_id=block, text=None)

    # -- calls ---------------------------------------------------------------------------------

    def _call_start(self, frame: Shown) -> None:
        self._speaking()
        call_id, call = str(frame["toolCallId"]), _Call(str(frame["toolName"]))
        if call_id not in self._calls:
            self._calls[call_id] = call
            self._add("TOOL_CALL_START", tool_call_id=call_id, tool_call_name=call.shown)

    def _call_delta(self, frame: Shown) -> None:
        call = self._calls.get(str(frame["toolCallId"]))
        if call is None:
            return
        call.text += str(frame["delta"])
        if not call.asks:
            self._add(
                "TOOL_CALL_DELTA",
                tool_call_id=str(frame["toolCallId"]),
                delta=str(frame["delta"]),
            )

    def _call_end(self, frame: Shown) -> None:
        # The ends of all calls come together, when the model call is closed.
        call = self._calls.get(str(frame["toolCallId"]))
        if call is not None and call.asks and not call.ended:
            self._add(
                "TOOL_CALL_DELTA",
                tool_call_id=str(frame["toolCallId"]),
                delta=_asked_text(call.text),
            )
        if call is not None:
            call.ended = True

    def _gate(self, frame: Shown) -> None:
        try:
            kind = GateKind(str(frame.get("kind")))
        except ValueError:
            return
        self._reply()
        self._close_model()
        call_id, tool = str(frame["tool_use_id"]), str(frame["tool_name"])
        call = self._calls.setdefault(call_id, _Call(tool))
        # A plan is listed as a question, so its own name is known from its call only.
        name = shown_name(kind, tool)
        confirmed = kind in _CONFIRMED
        block = {
            "type": "tool_call",
            "id": call_id,
            "name": name,
            "input": shown_input(kind, frame["tool_input"], call.text),
            "state": "asking" if confirmed else "submitted",
            "suggested_rules": [
                permission_rule(rule) for rule in frame.get("suggested_rules") or ()
            ],
            "finished_at": None,
        }
        if not confirmed:
            self._open_result(call_id, call, name)
        self._add(
            "REQUIRE_USER_CONFIRM" if confirmed else "REQUIRE_EXTERNAL_EXECUTION",
            tool_calls=[block],
            metadata={
                "request_id": frame["request_id"],
                "kind": kind.value,
                "digest": frame.get("digest"),
            },
        )

    # -- results -------------------------------------------------------------------------------

    def _result_start(self, frame: Shown) -> None:
        call = self._calls.get(str(frame["toolCallId"]))
        if call is not None:
            self._open_result(str(frame["toolCallId"]), call, call.shown)

    def _result_delta(self, frame: Shown) -> None:
        call = self._calls.get(str(frame["toolCallId"]))
        if call is not None:
            self._say(str(frame["toolCallId"]), call, str(frame["delta"]))

    def _result_end(self, frame: Shown) -> None:
        call_id = str(frame["toolCallId"])
        call = self._calls.pop(call_id, None)
        if call is not None:
            said = "" if call.said else str(frame.get("result") or "")
            self._result(call_id, call, said, str(frame.get("state") or "success"))

    def _hold(self, step: _Step, frame: Shown) -> None:
        if self._calling:
            self._held.append((step, frame))
        else:
            step(frame)

    def _drop_calls(self) -> None:
        """Forgets calls whose results were never seen; what was begun is ended."""
        for call_id, call in self._calls.items():
            if call.opened:
                self._result(call_id, call, TURN_ENDED, "interrupted")
        self._calls.clear()

    def _interrupt(self, text: str) -> None:
        for call_id, call in self._calls.items():
            self._result(call_id, call, text, "interrupted")
        self._calls.clear()

    def _result(self, call_id: str, call: _Call, text: str, state: str) -> None:
        self._open_result(call_id, call, call.shown)
        if text:
            self._say(call_id, call, text)
        self._add("TOOL_RESULT_END", tool_call_id=call_id, state=state)

    def _say(self, call_id: str, call: _Call, text: str) -> None:
        self._open_result(call_id, call, call.shown)
        call.said = True
        self._add("TOOL_RESULT_TEXT_DELTA", tool_call_id=call_id, delta=text)

    def _open_result(self, call_id: str, call: _Call, name: str) -> None:
        if not call.opened:
            call.opened = True
            self._reply()
            self._add("TOOL_RESULT_START", tool_call_id=call_id, tool_call_name=name)

    def _add(self, kind: str, **fields: Any) -> None:
        self._out.append(
            {
                "id": "",
                "created_at": "",
                "metadata": {},
                "type": kind,
                "reply_id": reply_id(self._run_id, self._turn),
                **fields,
            }
        )


def _count(usage: Any, name: str) -> int:
    found = usage.get(name) if isinstance(usage, dict) else None
    return found if isinstance(found, int) else 0


def _asked_text(text: str) -> str:
    try:
        shown = ask_input(json.loads(text))
    except ValueError:
        shown = None
    return text if shown is None else compact(shown)


def _naive(ms: int) -> str:
    """A time as AgentScope writes it: ISO 8601 in UTC without saying so."""
    return f"{datetime.fromtimestamp(ms / 1000, tz=UTC).replace(tzinfo=None):%Y-%m-%dT%H:%M:%S.%f}"
