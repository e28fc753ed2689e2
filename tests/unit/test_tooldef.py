"""Tools: the declaration, the strict check of input, and one guarded run."""

import asyncio
import contextvars
import datetime as dt
import enum
import json
import threading
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field
from typing_extensions import TypedDict

from signoff.domain.error import SignoffError
from signoff.tooldef import (
    CallContext,
    InvalidToolInputError,
    ToolDefinitionError,
    ToolFailedError,
    ToolTimeoutError,
    current_call,
    limit_threads,
    render,
    tool,
    use_call,
)

pytestmark = pytest.mark.anyio

CALL = CallContext(
    run_id=7, tool_use_id="call_1", tool="t", digest="d" * 64, idempotency_key="k", attempt=1
)


@pytest.fixture
def anyio_backend():
    return "asyncio"


class Item(BaseModel):
    sku: str
    qty: int = 1


@dataclass
class Address:
    city: str


class Size(TypedDict):
    width: int


class Colour(enum.Enum):
    RED = "red"


@tool
def order(items: list[Item], note: str = "none", *, express: bool = False) -> str:
    """Order the items.

    They come within a week.
    """
    return f"{len(items)} {note} {express}"


@tool
def every_type(
    *,
    whole: int = 0,
    number: float = 0,
    text: Annotated[str, Field(min_length=2)] = "ab",
    flag: bool = False,
    pair: tuple[int, str] = (1, "a"),
    unique: set[int] | None = None,
    day: dt.date | None = None,
    colour: Colour = Colour.RED,
    size: Literal["s", "m"] = "s",
    address: Address | None = None,
    box: Size | None = None,
    either: int | list[Item] = 0,
    counts: dict[str, int] | None = None,
    anything: Any = None,
) -> str:
    return "ok"


def test_a_declaration_keeps_what_was_said():
    """Name, description and flags are the function's and the decorator's."""

    @tool(read_only=True, timeout=2.5, name="look-up", patterns="path")
    def look_up(path: str) -> str:
        """Look it up."""
        return path

    assert (look_up.name, look_up.description) == ("look-up", "Look it up.")
    assert (look_up.read_only, look_up.idempotent, look_up.external) == (True, False, False)
    assert (look_up.timeout, look_up.patterns) == (2.5, "path")
    assert look_up.pattern_parameter == "path"
    assert look_up("x") == "x"
    assert order.description == "Order the items.\n\nThey come within a week."
    assert order.pattern_parameter is None


def test_the_schema_is_closed_on_every_level():
    """The model is told exactly what the check accepts."""
    assert order.input_schema == {
        "type": "object",
        "additionalProperties": False,
        "required": ["items"],
        "properties": {
            "items": {"type": "array", "items": {"$ref": "#/$defs/Item"}},
            "note": {"type": "string", "default": "none"},
            "express": {"type": "boolean", "default": False},
        },
        "$defs": {
            "Item": {
                "type": "object",
                "additionalProperties": False,
                "required": ["sku"],
                "properties": {"sku": {"type": "string"}, "qty": {"type": "integer", "default": 1}},
                "title": "Item",
            }
        },
    }
    json.dumps(every_type.input_schema, allow_nan=False)


def test_any_parameter_name_works():
    """Names that a model class would keep for itself are plain names here."""

    @tool
    def odd(schema: int, model_config: str, _private: int, copy: int, self_: int = 1) -> str:
        return "ok"

    given_input = {"schema": 1, "model_config": "a", "_private": 2, "copy": 3}
    assert odd.check(given_input) == given_input


def test_a_tool_without_parameters_takes_an_empty_object():
    """And nothing else."""

    @tool
    def ping() -> str:
        return "pong"

    assert ping.check({}) == {}
    assert ping.input_schema == {"type": "object", "additionalProperties": False, "properties": {}}
    with pytest.raises(InvalidToolInputError):
        ping.check({"x": 1})


def test_omitted_parameters_stay_omitted():
    """The function's own defaults apply, on every level, and None is not an omission."""
    found = order.check({"items": [{"sku": "a"}]})
    assert found == {"items": [Item(sku="a")]}
    with pytest.raises(InvalidToolInputError) as caught:
        order.check({"items": [], "note": None})
    assert caught.value.field == "note"


@pytest.mark.parametrize(
    ("tool_input", "field"),
    [
        ({"whole": "1"}, "whole"),
        ({"whole": 1.0}, "whole"),
        ({"whole": 1.5}, "whole"),
        ({"whole": True}, "whole"),
        ({"whole": None}, "whole"),
        ({"number": "1"}, "number"),
        ({"number": True}, "number"),
        ({"text": 1}, "text"),
        ({"text": "a"}, "text"),
        ({"text": ["ab"]}, "text"),
        ({"flag": 1}, "flag"),
        ({"flag": "true"}, "flag"),
        ({"pair": [1]}, "pair[1]"),
        ({"pair": [1, 2]}, "pair[1]"),
        ({"pair": "1a"}, "pair"),
        ({"unique": [1, "2"]}, "unique[1]"),
        ({"day": 20300101}, "day"),
        ({"day": "tomorrow"}, "day"),
        ({"colour": "RED"}, "colour"),
        ({"colour": ["red"]}, "colour"),
        ({"size": "S"}, "size"),
        ({"address": {"city": "a", "zip": "b"}}, "address.zip"),
        ({"address": {}}, "address.city"),
        ({"box": {"width": "1"}}, "box.width"),
        ({"box": {"width": 1, "depth": 1}}, "box.depth"),
        ({"either": "x"}, "either"),
        ({"either": [{"sku": 5}]}, "either"),
        ({"counts": {"a": 1, "b": 2.0}}, "counts.b"),
        ({"counts": []}, "counts"),
        ({"other": 1}, "other"),
        ({"Whole": 1}, "Whole"),
    ],
)
def test_nothing_is_coerced_and_the_field_is_named(tool_input, field):
    """A wrong type, value or name is refused with the dotted path of the first wrong value."""
    with pytest.raises(InvalidToolInputError) as caught:
        every_type.check(tool_input)
    assert caught.value.code == "invalid_tool_input"
    assert caught.value.field == field
    assert caught.value.message.startswith(f"{field}: ")


@pytest.mark.parametrize(
    ("tool_input", "field", "message"),
    [
        ({}, "items", "items: is required"),
        ({"items": [{"sku": "a"}, {"qty": 2}]}, "items[1].sku", "items[1].sku: is required"),
        ({"items": [{"sku": "a", "qty": "2"}]}, "items[0].qty", "items[0].qty: Input should be"),
        ({"items": [{"sku": "a", "price": 2}]}, "items[0].price", "is not a parameter"),
        ({"items": [], "x": 1}, "x", "x: is not a parameter of this tool"),
    ],
)
def test_the_message_says_what_is_wrong(tool_input, field, message):
    """Missing, unknown and mistyped fields are told apart in words."""
    with pytest.raises(InvalidToolInputError) as caught:
        order.check(tool_input)
    assert caught.value.field == field
    assert message in caught.value.message


@pytest.mark.parametrize(
    ("tool_input", "expected"),
    [
        ({"number": 1}, {"number": 1.0}),
        ({"pair": [2, "b"]}, {"pair": (2, "b")}),
        ({"unique": [1, 2]}, {"unique": {1, 2}}),
        ({"day": "2030-01-02"}, {"day": dt.date(2030, 1, 2)}),
        ({"colour": "red"}, {"colour": Colour.RED}),
        ({"address": {"city": "a"}}, {"address": Address(city="a")}),
        ({"box": {"width": 3}}, {"box": {"width": 3}}),
        ({"either": [{"sku": "a"}]}, {"either": [Item(sku="a")]}),
        ({"unique": None}, {"unique": None}),
        ({"whole": 10**30}, {"whole": 10**30}),
        ({"text": "\U0001f600é"}, {"text": "\U0001f600é"}),
    ],
)
def test_json_is_read_into_the_declared_types(tool_input, expected):
    """What JSON has no form for arrives as the parameter's type."""
    assert every_type.check(tool_input) == expected


@pytest.mark.parametrize("tool_input", [None, [], "x", 1, [["whole", 1]]])
def test_only_objects_are_input(tool_input):
    """A model that sends no object gets our error."""
    with pytest.raises(InvalidToolInputError, match="must be an object"):
        every_type.check(tool_input)


@pytest.mark.parametrize(
    "value", [float("nan"), float("inf"), "\ud800", {"\udfff": 1}, object(), {1, 2}, b"x"]
)
def test_what_is_not_json_is_refused(value):
    """Values that JSON cannot carry are refused by our error, whatever the parameter's type."""
    with pytest.raises(InvalidToolInputError):
        every_type.check({"anything": value})


def test_endless_and_deep_input_is_refused():
    """Neither a cycle nor absurd depth raises anything raw."""
    endless: list[Any] = []
    endless.append(endless)
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    for value in (endless, deep):
        with pytest.raises(InvalidToolInputError):
            every_type.check({"anything": value})


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)  # fmt: skip


@given(JSON, st.sampled_from(list(every_type.input_schema["properties"])) | st.text())
def test_any_json_is_checked_or_refused(value, key):
    """No JSON makes anything escape but our error; an unrestricted parameter keeps its value."""
    try:
        found = every_type.check({key: value})
    except InvalidToolInputError:
        return
    assert list(found) == [key]
    if key == "anything":
        assert json.dumps(found[key]) == json.dumps(value)


def test_a_validator_that_breaks_is_an_input_error():
    """A user's own type may raise ValueError; the model hears of it."""

    class Even(BaseModel):
        n: Annotated[int, Field(multiple_of=2)]

    @tool
    def halve(even: Even) -> int:
        return even.n // 2

    with pytest.raises(InvalidToolInputError) as caught:
        halve.check({"even": {"n": 3}})
    assert caught.value.field == "even.n"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"name": "a b"}, "1 to 64"),
        ({"name": ""}, "1 to 64"),
        ({"name": "x" * 65}, "1 to 64"),
        ({"name": "é"}, "1 to 64"),
        ({"name": "a\n"}, "1 to 64"),
        ({"timeout": 0}, "positive"),
        ({"timeout": -1.0}, "positive"),
        ({"timeout": float("inf")}, "positive"),
        ({"timeout": float("nan")}, "positive"),
        ({"patterns": "shell"}, "first parameter of type str"),
    ],
    ids=repr,
)
def test_a_bad_declaration_is_refused(options, message):
    """The mistake shows when the module is loaded, not when a model calls."""

    def function(number: int) -> str:
        return f"{number}"

    with pytest.raises(ToolDefinitionError, match=message):
        tool(**options)(function)


def test_parameters_must_be_named_and_typed():
    """No star arguments, no positional-only ones, no unknown types, no generators."""

    def untyped(a): ...

    def stars(*args: int) -> None: ...

    def more(**kwargs: int) -> None: ...

    def positional(a: int, /) -> None: ...

    def unknown(a: "Nowhere") -> None: ...  # type: ignore[name-defined]  # noqa: F821 - on purpose

    def no_schema(a: threading.Lock) -> None: ...

    def generator(a: int):
        yield a

    for function in (untyped, stars, more, positional, unknown, no_schema, generator):
        with pytest.raises(ToolDefinitionError, match=function.__name__):
            tool(function)


async def test_plain_and_async_functions_run():
    """Both give text; a plain one does not block the loop's thread."""
    threads = []

    @tool
    def plain(a: int, b: int = 2) -> str:
        threads.append(threading.current_thread().name)
        return f"{a} {b}"

    @tool
    async def quick(a: int) -> str:
        await asyncio.sleep(0)
        return f"{a}"

    assert await plain.run(plain.check({"a": 1})) == "1 2"
    assert await quick.run({"a": 1}) == "1"
    assert threads[0].startswith("signoff-tool")


async def test_a_coroutine_behind_a_plain_decorator_is_awaited():
    """A wrapper that hides an async function gives its result, not a coroutine's repr."""

    async def inner(a: int) -> int:
        return a

    def wrapped(a: int):
        return inner(a)

    assert await tool(wrapped).run({"a": 3}) == "3"


@pytest.mark.parametrize("kind", ["plain", "async"])
async def test_the_call_is_known_inside(kind):
    """The context reaches the function, in a thread too, and ends with the block."""
    other = contextvars.ContextVar("other", default="unset")

    def plain() -> str:
        return f"{current_call().tool_use_id} {other.get()}"

    async def quick() -> str:
        return plain()

    other.set("carried")
    with use_call(CALL):
        assert current_call() is CALL
        found = await tool(plain if kind == "plain" else quick).run({})
    assert found == "call_1 carried"
    with pytest.raises(SignoffError, match="no tool call"):
        current_call()


@pytest.mark.parametrize("error", [ValueError("x"), TimeoutError("own"), SignoffError("y")])
@pytest.mark.parametrize("kind", ["plain", "async"])
async def test_a_tool_raises_what_its_function_raises(error, kind):
    """Ordinary exceptions pass as they are, also a TimeoutError of the tool's own."""

    def plain() -> str:
        raise error

    async def quick() -> str:
        raise error

    subject = tool(timeout=30)(plain if kind == "plain" else quick)
    with pytest.raises(type(error)) as caught:
        await subject.run({})
    assert caught.value is error


@pytest.mark.parametrize(
    "error", [SystemExit(3), KeyboardInterrupt(), StopIteration(1), asyncio.CancelledError()]
)
@pytest.mark.parametrize("kind", ["plain", "async"])
async def test_nothing_a_tool_raises_ends_the_worker(error, kind):
    """What would stop the loop, hang a future or look like a cancellation is a failed tool."""

    def plain() -> str:
        raise error

    async def quick() -> str:
        raise error

    subject = tool(plain if kind == "plain" else quick)
    wanted = RuntimeError if (kind, type(error)) == ("async", StopIteration) else ToolFailedError
    async with asyncio.timeout(5):
        with pytest.raises(wanted):
            await subject.run({})


async def test_an_exit_inside_a_group_is_a_failed_tool():
    """A BaseExceptionGroup from a task group is treated like what it holds."""

    @tool
    async def grouped() -> str:
        raise BaseExceptionGroup("all", [SystemExit(1)])

    with pytest.raises(ToolFailedError):
        await grouped.run({})


async def test_an_async_tool_is_cancelled_at_its_timeout():
    """The error has its own code, and the function sees the cancellation."""
    seen = []

    @tool(timeout=0.01)
    async def long() -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise
        return ""

    with pytest.raises(ToolTimeoutError, match=r"0\.01 s") as caught:
        await long.run({})
    assert caught.value.code == "tool_timeout"
    assert seen == ["cancelled"]


async def test_a_plain_tool_is_left_at_its_timeout():
    """The caller goes on although the thread does too."""
    release = threading.Event()
    ended = threading.Event()

    @tool(timeout=0.01)
    def stuck() -> str:
        release.wait(10)
        ended.set()
        return ""

    with pytest.raises(ToolTimeoutError):
        await stuck.run({})
    assert not ended.is_set()
    release.set()
    assert await asyncio.to_thread(ended.wait, 10)


@pytest.mark.parametrize("kind", ["plain", "async"])
async def test_cancelling_the_caller_is_no_failure_of_the_tool(kind):
    """A cancellation from outside passes as itself."""
    release = threading.Event()

    def plain() -> None:
        release.wait(10)

    async def quick() -> None:
        await asyncio.Event().wait()

    subject = tool(plain if kind == "plain" else quick)
    task = asyncio.create_task(subject.run({}))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    release.set()


async def test_threads_are_limited():
    """No more plain functions run at once than allowed; the rest wait."""
    limit_threads(2)
    running, peak, lock = 0, 0, threading.Lock()
    gate = threading.Barrier(2)

    @tool
    def counted() -> None:
        nonlocal running, peak
        with lock:
            running += 1
            peak = max(peak, running)
        gate.wait(10)
        with lock:
            running -= 1

    try:
        await asyncio.gather(*(counted.run({}) for _ in range(6)))
    finally:
        limit_threads(32)
    assert peak == 2


async def test_an_external_tool_never_runs_here():
    """Its function is a declaration only."""

    @tool(external=True)
    def transfer(amount: int) -> str:
        raise AssertionError

    with pytest.raises(ToolFailedError, match="external"):
        await transfer.run({"amount": 1})


class Unprintable:
    def __repr__(self):
        return "<unprintable \ud800>"


class Unreadable:
    def __repr__(self):
        raise ValueError


@pytest.mark.parametrize(
    ("result", "text"),
    [
        ("as it is\n", "as it is\n"),
        ("", ""),
        (None, "null"),
        (True, "true"),
        (3, "3"),
        ({"b": [1, 2.5], "a": "é"}, '{"b":[1,2.5],"a":"é"}'),
        (Item(sku="a"), '{"sku":"a","qty":1}'),
        (Address(city="x"), '{"city":"x"}'),
        (dt.date(2030, 1, 2), '"2030-01-02"'),
        (Colour.RED, '"red"'),
        ({"n": float("nan")}, '{"n":"NaN"}'),
        (b"raw", '"raw"'),
        (b"\xff", "b'\\xff'"),
        ("bad \ud800", "bad \ufffd"),
        (["bad \ud800"], "['bad \\ud800']"),
        (Unprintable(), '"<unprintable \ufffd\ufffd\ufffd>"'),
        ([Unreadable()], '["<Unserializable Unreadable object>"]'),
    ],
)
def test_results_are_text(result, text):
    """A string as it is, other values as compact JSON; strange ones still become text."""
    assert render(result) == text


@given(st.text() | JSON)
def test_any_result_can_be_stored(result):
    """Whatever a tool returns, its text is encodable."""
    render(result).encode()
