"""The border to agents: whatever one answers is a valid value of the port, or AgentFailedError.

An agent is code of the operator's, and Python holds it to none of its annotations. What came
through here is made of plain values only, so that the engine can judge it, store it and show it.
"""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Generator, Mapping
from typing import Any, NoReturn, get_args

from signoff.agents import AgentCall, AgentFailedError, Round, Says, Settled, Step, Usage
from signoff.canonical import MAX_DEPTH, MAX_SAFE_INTEGER
from signoff.domain.gate import AGENT_RULE
from signoff.domain.message import ResultState
from signoff.domain.rule import Verdict
from signoff.strictjson import well_formed
from signoff.tooldef import Tool

#: A state is written with each step and read with each takeover.
MAX_SAVED = 8 * 1024 * 1024
#: All that one step may ask for; the script that commits it takes some thousand values at once.
MAX_CALLS = 256
#: All texts of one step together; it is written to the store as a whole.
MAX_CHARS = 16 * 1024 * 1024
#: All values of one step together: calls, and what their inputs are made of.
MAX_PARTS = 100_000

_CODE = re.compile(r"[a-z][a-z0-9_]{0,63}")
_MESSAGE_CHARS = 2000
_STATES = frozenset(get_args(ResultState))
_WORDS = {word.value: word for word in Says}
_RULE = frozenset({"tool", "effect", AGENT_RULE})


def step_of(answer: object) -> Step:
    """``answer`` as a step of plain values; AgentFailedError that names the field otherwise."""
    with _border("step"):
        return _Reading().step(answer)


def tools_of(answer: object) -> dict[str, Tool]:
    """``answer`` as tools by name; AgentFailedError that names the entry otherwise."""
    with _border("tools()"):
        if not isinstance(answer, Mapping):
            _wrong("tools()", "a mapping of names to tools", answer)
        found: dict[str, Tool] = {}
        for name, item in answer.items():
            if not isinstance(name, str):
                _wrong("a name in tools()", "a str", name)
            if not isinstance(item, Tool):
                _wrong(f"tools()[{name!a}]", "a tool as @signoff.tool makes it", item)
            found[str.__str__(name)] = item
        return found


def told(error: AgentFailedError) -> AgentFailedError:
    """``error`` with a code, a message and a pause that can be stored and slept."""
    code: Any = error.code
    message: Any = error.message
    pause: Any = error.retry_after_s
    if not isinstance(code, str) or _CODE.fullmatch(code) is None:
        code = "agent_error"
    if not isinstance(message, str):
        message = f"the agent failed with a message of type {type(message).__name__}"
    if not isinstance(pause, (int, float)) or not math.isfinite(pause) or pause < 0:
        pause = None
    return AgentFailedError(
        str.__str__(code),
        well_formed(str.__str__(message))[:_MESSAGE_CHARS],
        retryable=error.retryable is True,
        retry_after_s=pause,
    )


def words_of(error: BaseException) -> str:
    """The kind and the text of any exception, one whose text cannot be made included."""
    try:
        text = f"{type(error).__name__}: {error}"
    except Exception:  # noqa: BLE001 - its own code makes the text
        text = type(error).__name__
    return well_formed(text)[:_MESSAGE_CHARS]


@contextlib.contextmanager
def _border(what: str) -> Generator[None]:
    try:
        yield
    except AgentFailedError as error:
        raise told(error) from None
    except Exception as error:
        # Its values are objects of any class, and looking at them runs their code.
        msg = f"the agent's {what} cannot be read: {words_of(error)}"
        raise AgentFailedError("agent_error", msg[:_MESSAGE_CHARS]) from error


class _Reading:
    """One step being read; it stops before it is too much to store."""

    def __init__(self) -> None:
        self._parts = 0
        self._chars = 0

    def step(self, answer: object) -> Step:
        if not isinstance(answer, Step):
            _wrong("the agent's answer", "a signoff.agents.Step", answer)
        earlier = tuple(
            self._round(item, f"earlier[{n}]")
            for n, item in enumerate(self._list(answer.earlier, "earlier"))
        )
        if not isinstance(answer.correctable, bool):
            _wrong("correctable", "a bool", answer.correctable)
        calls = self._calls(answer.calls, "calls")
        count = len(calls) + sum(1 + len(part.calls) for part in earlier)
        if count > MAX_CALLS:
            _fail(f"one step has {count} calls and earlier rounds; at most {MAX_CALLS} are taken")
        return Step(
            text=self._text(answer.text, "text"),
            calls=calls,
            earlier=earlier,
            usage=_usage(answer.usage),
            saved=_saved(answer.saved),
            correctable=answer.correctable,
        )

    def _round(self, item: object, field: str) -> Round:
        if not isinstance(item, Round):
            _wrong(field, "a signoff.agents.Round", item)
        calls = self._calls(item.calls, f"{field}.calls")
        for n, call in enumerate(calls):
            if call.settled is None:
                _fail(f"{field}.calls[{n}] is of an earlier round and has no result in settled")
        return Round(text=self._text(item.text, f"{field}.text"), calls=calls)

    def _calls(self, given: object, field: str) -> tuple[AgentCall, ...]:
        calls = [
            self._call(item, f"{field}[{n}]") for n, item in enumerate(self._list(given, field))
        ]
        seen: set[str] = set()
        for n, call in enumerate(calls):
            if call.id in seen:
                _fail(f"{field}[{n}].id is that of another call; ids are unique within a step")
            seen.add(call.id)
        return tuple(calls)

    def _call(self, item: object, field: str) -> AgentCall:
        if not isinstance(item, AgentCall):
            _wrong(field, "a signoff.agents.AgentCall", item)
        if not isinstance(item.input, dict):
            _wrong(f"{field}.input", "a dict", item.input)
        rules = enumerate(self._list(item.suggested_rules, f"{field}.suggested_rules"))
        return AgentCall(
            id=self._name(item.id, f"{field}.id"),
            name=self._name(item.name, f"{field}.name"),
            input=self._json(item.input, f"{field}.input", 1),
            says=_says(item.says, f"{field}.says"),
            suggested_rules=tuple(
                self._rule(rule, f"{field}.suggested_rules[{n}]") for n, rule in rules
            ),
            settled=self._settled(item.settled, f"{field}.settled"),
        )

    def _rule(self, rule: object, field: str) -> dict[str, str]:
        if not isinstance(rule, dict):
            _wrong(field, 'a dict with "tool" and "effect"', rule)
        found = {
            self._name(key, f"a key of {field}"): self._name(value, f"{field}[{key!a}]")
            for key, value in dict.items(rule)
        }
        if not {"tool", "effect"} <= found.keys() <= _RULE:
            _fail(f'{field} must have "tool" and "effect", may have "{AGENT_RULE}", and no more')
        if AGENT_RULE not in found and found["effect"] != Verdict.ALLOW:
            _fail(f'{field}["effect"] must be "allow" in a rule of the engine')
        return found

    def _settled(self, item: object, field: str) -> Settled | None:
        if item is None:
            return None
        if not isinstance(item, Settled):
            _wrong(field, "a signoff.agents.Settled or None", item)
        state: Any = item.state
        if not isinstance(state, str) or state not in _STATES:
            _fail(f"{field}.state must be one of {', '.join(sorted(_STATES))}")
        return Settled(
            state=str.__str__(state),  # type: ignore[arg-type]
            content=self._text(item.content, f"{field}.content"),
        )

    def _list(self, given: object, field: str) -> list[Any]:
        if not isinstance(given, (tuple, list)):
            _wrong(field, "a tuple", given)
        self._spend(len(given), 0, field)
        return list(given)

    def _name(self, given: object, field: str) -> str:
        """A text that is compared: it is refused where others would be repaired."""
        if not isinstance(given, str):
            _wrong(field, "a str", given)
        text = str.__str__(given)
        if not text or text != well_formed(text):
            _fail(f"{field} must be a text that is not empty and has a UTF-8 form")
        self._spend(1, len(text), field)
        return text

    def _text(self, given: object, field: str) -> str:
        if not isinstance(given, str):
            _wrong(field, "a str", given)
        self._spend(1, len(given), field)
        return well_formed(str.__str__(given))

    def _json(self, item: object, field: str, depth: int) -> Any:
        """A copy of plain values; what has no canonical form among them is told to the model."""
        self._spend(1, 0, field)
        if item is None or isinstance(item, bool):
            return item
        if isinstance(item, str):
            self._spend(0, len(item), field)
            return str.__str__(item)
        if isinstance(item, int):
            return int.__int__(item)
        if isinstance(item, float):
            return float.__float__(item)
        if not isinstance(item, (dict, list, tuple)):
            _wrong(field, "a JSON value", item)
        if depth > MAX_DEPTH:
            return item  # too deep to be looked at, and refused for it
        if isinstance(item, dict):
            for key in dict.keys(item):
                if not isinstance(key, str):
                    _wrong(f"a key of {field}", "a str", key)
                self._spend(0, len(key), field)
            return {
                str.__str__(key): self._json(value, f"{field}.{_short(key)}", depth + 1)
                for key, value in dict.items(item)
            }
        return [self._json(value, f"{field}[{n}]", depth + 1) for n, value in enumerate(item)]

    def _spend(self, parts: int, chars: int, field: str) -> None:
        self._parts += parts
        self._chars += chars
        if self._parts > MAX_PARTS or self._chars > MAX_CHARS:
            _fail(
                f"the step is too large at {field}: at most {MAX_PARTS} values and "
                f"{MAX_CHARS} characters are taken"
            )


def _usage(given: object) -> Usage:
    if not isinstance(given, Usage):
        _wrong("usage", "a signoff.agents.Usage", given)
    return Usage(
        input_tokens=_count(given.input_tokens, "usage.input_tokens"),
        output_tokens=_count(given.output_tokens, "usage.output_tokens"),
        cache_read_tokens=_count(given.cache_read_tokens, "usage.cache_read_tokens"),
        cache_creation_tokens=_count(given.cache_creation_tokens, "usage.cache_creation_tokens"),
        cost_micros=_count(given.cost_micros, "usage.cost_micros"),
    )


def _count(given: object, field: str) -> int:
    if not isinstance(given, int) or isinstance(given, bool):
        _wrong(field, "an int", given)
    number = int.__int__(given)
    if not 0 <= number <= MAX_SAFE_INTEGER:
        _fail(f"{field} must be between 0 and 2^53 - 1")
    return number


def _saved(given: object) -> bytes | None:
    if given is None:
        return None
    if not isinstance(given, bytes):
        _wrong("saved", "bytes or None", given)
    if len(given) > MAX_SAVED:
        _fail(f"saved has {len(given)} bytes; at most {MAX_SAVED} are kept")
    return bytes(given)


def _says(given: object, field: str) -> Says:
    if not isinstance(given, str) or str.__str__(given) not in _WORDS:
        _fail(f"{field} must be a signoff.agents.Says")
    return _WORDS[str.__str__(given)]


def _short(key: str) -> str:
    return key if len(key) <= 64 else f"{key[:64]}…"  # noqa: PLR2004 - enough to find it


def _wrong(field: str, wanted: str, given: object) -> NoReturn:
    _fail(f"{field} must be {wanted}, not {type(given).__name__}")


def _fail(message: str) -> NoReturn:
    raise AgentFailedError("agent_error", message)
