"""The form of ``metadata.script``, which the scripted model plays turn by turn."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, NoReturn, cast, get_args

from signoff.domain.error import InvalidFieldError
from signoff.domain.gate import PLAN_TOOL
from signoff.domain.message import ToolUse

MAX_DELAY_MS = 3_600_000

ErrorKind = Literal["rate_limit", "overloaded", "server", "auth", "context"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptedError:
    """A provider error that the first ``times`` tries of a turn end with."""

    kind: ErrorKind
    times: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptedTurn:
    """What the model does in one turn; ``text`` may hold placeholders."""

    text: str
    tool_calls: tuple[ToolUse, ...]
    delay_ms: float
    error: ScriptedError | None


def check_script(metadata: Mapping[str, Any] | None) -> None:
    """Pass if ``metadata`` has no script or one of the right form.

    Raises InvalidFieldError, code ``invalid_script``, whose ``field`` is the path of what is wrong.
    """
    for index in range(script_length(metadata) or 0):
        script_turn(metadata, index)


def script_length(metadata: Mapping[str, Any] | None) -> int | None:
    """How many turns the script has; None without a script."""
    script = (metadata or {}).get("script")
    if script is None:
        return None
    if not isinstance(script, list):
        _refuse("must be a list of turns", "metadata.script")
    return len(script)


def script_turn(metadata: Mapping[str, Any] | None, index: int) -> ScriptedTurn:
    """Turn ``index`` of the script; reads no other turn, as it is asked for on every step."""
    path = f"metadata.script[{index}]"
    turn = _mapping((metadata or {})["script"][index], path)
    text = _text(turn, "text", path, default="")
    plan = _text(turn, "plan", path, default=None)
    calls = _calls(turn.get("tool_calls"), f"{path}.tool_calls")
    if plan is not None:
        calls = [*calls, {"name": PLAN_TOOL, "input": {"plan": plan}}]
    return ScriptedTurn(
        text=text or "",
        tool_calls=_with_ids(calls, index),
        delay_ms=_number(turn.get("delay_ms"), f"{path}.delay_ms"),
        error=_error(turn.get("error"), f"{path}.error"),
    )


def _calls(value: Any, path: str) -> list[dict[str, Any]]:
    if value is None:
        return []
    if not isinstance(value, list):
        _refuse("must be a list of tool calls", path)
    calls = []
    for index, item in enumerate(value):
        at = f"{path}[{index}]"
        call = _mapping(item, at)
        name = _text(call, "name", at, default=None)
        if not name:
            _refuse("must be the name of a tool", f"{at}.name")
        call_id = _text(call, "id", at, default=None)
        if call_id == "":
            _refuse("must not be empty", f"{at}.id")
        given = call.get("input")
        tool_input = {} if given is None else _mapping(given, f"{at}.input")
        calls.append({"id": call_id, "name": name, "input": tool_input})
    return calls


def _with_ids(calls: list[dict[str, Any]], turn: int) -> tuple[ToolUse, ...]:
    """Fill in the ids left out, the same on every reading and none of those given."""
    taken = {call.get("id") for call in calls}
    found = []
    for index, call in enumerate(calls):
        call_id = call.get("id")
        if call_id is None:
            call_id = f"call_{turn}_{index}"
            while call_id in taken:
                call_id += "_"
        found.append(ToolUse(id=call_id, name=call["name"], input=dict(call["input"])))
    return tuple(found)


def _error(value: Any, path: str) -> ScriptedError | None:
    if value is None:
        return None
    error = _mapping(value, path)
    kind = error.get("kind")
    kinds = get_args(ErrorKind)
    if kind not in kinds:
        _refuse(f"must be one of {', '.join(kinds)}", f"{path}.kind")
    times = error.get("times", 1)
    if type(times) is not int or times < 0:
        _refuse("must be a number of tries, 0 or more", f"{path}.times")
    return ScriptedError(kind=cast("ErrorKind", kind), times=times)


def _number(value: Any, path: str) -> float:
    if value is None:
        return 0
    if type(value) not in (int, float) or not 0 <= value <= MAX_DELAY_MS:
        _refuse(f"must be a number of milliseconds up to {MAX_DELAY_MS}", path)
    return cast("float", value)


def _text(holder: Mapping[str, Any], key: str, path: str, *, default: str | None) -> str | None:
    value = holder.get(key)
    if value is None:
        return default
    if not isinstance(value, str):
        _refuse("must be a string", f"{path}.{key}")
    return value


def _mapping(value: Any, path: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        _refuse("must be an object", path)
    return value


def _refuse(message: str, path: str) -> NoReturn:
    raise InvalidFieldError(f"{path}: {message}", code="invalid_script", field=path)
