"""The border to agents: any Python value becomes a step of plain values, or an AgentFailedError."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from enum import StrEnum
from typing import Any, TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from signoff import tool
from signoff.agents import AgentCall, AgentFailedError, Round, Says, Settled, Step, Usage
from workers.agent.hosted import failure_of
from workers.agent.terms import MAX_CHARS, MAX_SAVED, step_of, told, tools_of, words_of

T = TypeVar("T")


def call(**changes: Any) -> AgentCall:
    return AgentCall(**{"id": "c", "name": "charge", "input": {}, **changes})


wrong: Any = Step
USED: Any = Usage
SETTLING: Any = Settled


def rules(*given: Any) -> Step:
    return Step(calls=(call(suggested_rules=given),))


class Hostile:
    """Looking at it goes wrong, and so does naming it."""

    def __getattribute__(self, name: str) -> Any:
        if name == "__class__":  # pytest itself looks at that
            return Hostile
        raise ZeroDivisionError(name)

    def __str__(self) -> str:
        raise KeyError

    __repr__ = __str__


class Posing(Hostile):
    """Says that it is a step."""

    def __getattribute__(self, name: str) -> Any:
        return Step if name == "__class__" else super().__getattribute__(name)


class Refusing(dict[str, Any]):
    """A mapping that cannot be walked."""

    def items(self) -> Any:
        raise ZeroDivisionError


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ("text", "the agent's answer must be a signoff.agents.Step, not str"),
        (None, "the agent's answer must be a signoff.agents.Step, not NoneType"),
        (Posing(), "the agent's step cannot be read: ZeroDivisionError"),
        (object.__new__(Step), "the agent's step cannot be read: AttributeError: "),
        (wrong(text=5), "text must be a str, not int"),
        (wrong(text=None), "text must be a str, not NoneType"),
        (wrong(saved="str"), "saved must be bytes or None, not str"),
        (wrong(saved=b"x" * (MAX_SAVED + 1)), "saved has 8388609 bytes"),
        (wrong(usage=None), "usage must be a signoff.agents.Usage, not NoneType"),
        (wrong(usage=USED(input_tokens=None)), "usage.input_tokens must be an int, not NoneType"),
        (wrong(usage=USED(cost_micros=-1)), "usage.cost_micros must be between 0"),
        (wrong(correctable="yes"), "correctable must be a bool, not str"),
        (wrong(calls=None), "calls must be a tuple, not NoneType"),
        (wrong(calls=({"id": "c"},)), "calls[0] must be a signoff.agents.AgentCall, not dict"),
        (wrong(calls=(call(id=7),)), "calls[0].id must be a str, not int"),
        (wrong(calls=(call(id=""),)), "calls[0].id must be a text that is not empty"),
        (wrong(calls=(call(), call())), "calls[1].id is that of another call"),
        (wrong(calls=(call(name="\ud800"),)), "calls[0].name must be a text"),
        (wrong(calls=(call(input=None),)), "calls[0].input must be a dict, not NoneType"),
        (wrong(calls=(call(input={"a": [{1}]}),)), "calls[0].input.a[0] must be a JSON value"),
        (wrong(calls=(call(input={1: 2}),)), "a key of calls[0].input must be a str, not int"),
        (wrong(calls=(call(says="maybe"),)), "calls[0].says must be a signoff.agents.Says"),
        (wrong(calls=(call(settled="x"),)), "calls[0].settled must be a signoff.agents.Settled"),
        (wrong(calls=(call(settled=SETTLING(state="done", content="")),)), "state must be one of"),
        (
            wrong(calls=(call(settled=SETTLING(state="error", content=1)),)),
            "settled.content must be",
        ),
        (wrong(text="x" * (MAX_CHARS + 1)), "the step is too large at text"),
        (wrong(earlier=("x",)), "earlier[0] must be a signoff.agents.Round, not str"),
        (wrong(earlier=(Round(text="", calls=(call(),)),)), "earlier[0].calls[0] is of an earlier"),
        (rules("charge"), "calls[0].suggested_rules[0] must be a dict"),
        (
            wrong(calls=(call(suggested_rules="charge"),)),
            "suggested_rules must be a tuple",
        ),
        (rules({"tool": "charge"}), 'suggested_rules[0] must have "tool" and "effect"'),
        (rules({"tool": "charge", "effect": "deny"}), 'must be "allow"'),
        (rules({"tool": 1, "effect": "allow"}), "suggested_rules[0]['tool'] must be a str"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_wrong_answer_is_named(answer: Any, words: str) -> None:
    """By the field in which it is wrong, whatever looking at it does."""
    with pytest.raises(AgentFailedError) as caught:
        step_of(answer)
    assert (caught.value.code, caught.value.retryable) == ("agent_error", False)
    assert words in caught.value.message


def test_endless_values_are_too_large() -> None:
    """Also those that are small and hold themselves."""
    endless: dict[str, Any] = {}
    endless |= {"a": endless, "b": endless}
    with pytest.raises(AgentFailedError, match="too large"):
        step_of(Step(calls=(call(input=endless),)))


class Word(StrEnum):
    HELLO = "hello"


def test_what_comes_through_is_plain() -> None:
    """Copies of exact types, so that nothing changes behind the engine's back."""
    given = {"a": Word.HELLO, "t": (1, True, 1.5), "n": None}
    (taken,) = step_of(Step(calls=[call(input=given, says="ask")])).calls  # type: ignore[arg-type]
    assert taken.says is Says.ASK
    assert taken.input == {"a": "hello", "t": [1, True, 1.5], "n": None}
    assert type(taken.input["a"]) is str
    given["a"] = "changed"  # type: ignore[assignment]
    assert taken.input["a"] == "hello"


def test_what_only_the_model_can_mend_is_left_for_it() -> None:
    """Numbers and texts without a canonical form come back as an error result of the call."""
    deep: dict[str, Any] = {}
    for _ in range(300):
        deep = {"d": deep}
    for item in (float("nan"), "\ud800", 2**70, deep):
        (taken,) = step_of(Step(calls=(call(input={"x": item}),))).calls
        assert taken.input.keys() == {"x"}


@tool
def charge(amount: int) -> str:
    """Charges."""
    return str(amount)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (None, "tools() must be a mapping of names to tools, not NoneType"),
        ([charge], "tools() must be a mapping of names to tools, not list"),
        ({"charge": len}, "tools()['charge'] must be a tool as @signoff.tool makes it, not bui"),
        ({1: charge}, "a name in tools() must be a str, not int"),
        (Refusing(), "the agent's tools() cannot be read: ZeroDivisionError"),
    ],
)
def test_wrong_tools_are_named(answer: Any, words: str) -> None:
    """By the entry; plain functions among them."""
    assert tools_of({"charge": charge}) == {"charge": charge}
    with pytest.raises(AgentFailedError) as caught:
        tools_of(answer)
    assert words in caught.value.message


LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(st.characters(codec=None)),
    st.binary(),
    st.none().map(lambda _: Hostile()),  # made late, since hypothesis shows its strategies
    st.none().map(lambda _: Posing()),
    st.sampled_from([*Says, Word.HELLO, len, charge, Step, "success", "ask"]),
)


def wild(fields: Callable[..., Any], *names: str, **likely: Any) -> Any:
    """Values of a class of the port with anything in their fields."""
    options = {name: st.one_of(likely[name], ANY) if name in likely else ANY for name in names}
    return st.fixed_dictionaries({}, optional=options).map(lambda given: fields(**given))


ANY = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(st.one_of(st.text(max_size=3), st.integers()), inner, max_size=3),
        st.sets(st.integers(), max_size=2),
    ),
    max_leaves=5,
)
USAGE = wild(Usage, "input_tokens", "cost_micros")
SETTLED = st.one_of(
    st.none(), st.builds(Settled, state=st.sampled_from(["success", 5]), content=LEAVES)
)
CALL = st.builds(
    AgentCall,
    id=st.one_of(st.text(max_size=3), ANY),
    name=st.one_of(st.just("charge"), ANY),
    input=st.one_of(st.dictionaries(st.text(max_size=3), ANY, max_size=3), ANY),
    says=st.one_of(st.sampled_from(Says), LEAVES),
    suggested_rules=st.one_of(
        st.just(()), st.tuples(st.just({"tool": "charge", "effect": "allow"})), ANY
    ),
    settled=st.one_of(SETTLED, ANY),
)
CALLS = st.one_of(st.lists(CALL, max_size=3).map(tuple), st.lists(ANY, max_size=2))
ROUNDS = st.lists(st.one_of(ANY, st.builds(Round, text=LEAVES, calls=CALLS)), max_size=2)
STEP = wild(
    Step,
    "text",
    "calls",
    "earlier",
    "usage",
    "saved",
    "correctable",
    text=st.text(st.characters(codec=None)),
    calls=CALLS,
    earlier=ROUNDS,
    usage=USAGE,
    saved=st.binary(),
    correctable=st.booleans(),
)


def taken(read: Callable[[object], T], answer: Any) -> T | None:
    """What ``answer`` is taken for; None after a failure that can be stored."""
    failures: list[AgentFailedError] = []
    try:
        return read(answer)
    except AgentFailedError as error:
        failures.append(error)
    (failure,) = failures
    assert (failure.code, failure.message.encode() == b"") == ("agent_error", False)
    return None


@given(st.one_of(ANY, STEP))
def test_any_answer_is_a_step_or_a_failure(answer: Any) -> None:
    """Nothing else ever; what is taken is taken again as it is, and can be stored."""
    step = taken(step_of, answer)
    if step is None:
        return
    assert step.text.encode() is not None
    assert json.dumps(asdict(step.usage))
    assert all(type(c.id) is str and type(c.name) is str for c in step.calls)
    assert repr(step_of(step)) == repr(step)  # NaN is not equal to itself


@given(ANY)
def test_any_tools_are_tools_or_a_failure(answer: Any) -> None:
    """Nothing else ever."""
    found = taken(tools_of, answer)
    assert found is None or all(item is charge for item in found.values())


@given(ANY, ANY, ANY, ANY)
def test_any_failure_can_be_stored_and_slept(code: Any, text: Any, retry: Any, pause: Any) -> None:
    """An agent makes its own AgentFailedErrors."""
    error = AgentFailedError(code, "", retryable=retry, retry_after_s=pause)
    error.message = text
    found = told(error)
    assert found.code.isascii()
    assert found.message.encode() is not None
    assert min(found.retry_after_s or 0.0, 30.0) >= 0
    assert found.retryable in (True, False)


def test_an_exception_without_words_is_a_failure_all_the_same() -> None:
    """Its text and its properties are code as well."""

    class MuteError(Exception):
        def __str__(self) -> str:
            raise KeyError

        @property
        def status_code(self) -> int:
            raise KeyError

    assert words_of(MuteError()) == "MuteError"
    assert failure_of(MuteError()).code == "agent_error"
