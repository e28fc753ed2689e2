"""The scripted model: the contract of ``metadata.script``."""

import json
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from signoff.domain.error import InvalidFieldError
from signoff.domain.message import Message, Text, ToolResult, ToolUse
from signoff.script import check_script
from workers.model.port import ModelError, ModelReply, ModelRequest
from workers.model.scripted import ScriptedModel

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend():
    return "asyncio"


class Play:
    """A scripted model with its surroundings recorded."""

    def __init__(self, **options: Any) -> None:
        self.slept: list[float] = []
        self.heard: list[str] = []
        self.counts: Counter[str] = Counter()
        self.model = ScriptedModel(sleep=self._sleep, **options)

    async def _sleep(self, seconds: float) -> None:
        self.slept.append(seconds)

    async def _on_text(self, piece: str) -> None:
        self.heard.append(piece)

    async def _count(self, name: str) -> int:
        self.counts[name] += 1
        return self.counts[name]

    async def reply(self, metadata: dict[str, Any], *messages: Message) -> ModelReply:
        request = ModelRequest(
            run_id=1,
            turn=1,
            model="scripted",
            instructions=None,
            messages=messages,
            tools=(),
            metadata=metadata,
            plan_mode=False,
        )
        self.heard.clear()
        found = await self.model.reply(request, on_text=self._on_text, count=self._count)
        assert "".join(self.heard) == found.text
        return found


def _user(text: str) -> Message:
    return Message(role="user", blocks=(Text(text),), turn=1, step=0)


def _assistant(*blocks: Text | ToolUse) -> Message:
    return Message(role="assistant", blocks=blocks, turn=1, step=1)


def _results(*results: ToolResult) -> Message:
    return Message(role="tool", blocks=results, turn=1, step=1)


async def test_the_turn_is_the_number_of_answers_so_far():
    """A repeated step gets the same turn; a reply goes on down the list."""
    play, script = Play(), {"script": [{"text": "one"}, {"text": "two"}]}
    assert (await play.reply(script, _user("a"))).text == "one"
    assert (await play.reply(script, _user("a"))).text == "one"
    answered = [_user("a"), _assistant(Text("one")), _user("b")]
    assert (await play.reply(script, *answered)).text == "two"
    over = await play.reply(script, *answered, _assistant(Text("two")), _user("c"))
    assert (over.text, over.tool_calls) == ("(end of script)", ())
    assert (await play.reply({"script": []}, _user("a"))).text == "(end of script)"


async def test_calls_keep_their_ids_and_get_stable_ones():
    """A given id is used; others are derived from the turn and never collide with a given one."""
    script = {
        "script": [
            {
                "tool_calls": [
                    {"name": "a", "input": {"x": 1.0}},
                    {"id": "call_0_2", "name": "b", "input": {}},
                    {"name": "c"},
                ]
            }
        ]
    }
    found = await Play().reply(script, _user("go"))
    assert found.text == ""
    assert found.tool_calls == (
        ToolUse("call_0_0", "a", {"x": 1.0}),
        ToolUse("call_0_2", "b", {}),
        ToolUse("call_0_2_", "c", {}),
    )
    assert (await Play().reply(script, _user("go"))).tool_calls == found.tool_calls


async def test_a_plan_is_presented():
    """It is a call of ExitPlanMode, after the turn's other calls."""
    script = {"script": [{"plan": "1. Go", "tool_calls": [{"name": "a", "input": {}}]}]}
    found = await Play().reply(script, _user("go"))
    assert found.tool_calls[1] == ToolUse("call_0_1", "ExitPlanMode", {"plan": "1. Go"})


async def test_placeholders_are_filled_once():
    """What is put in is not expanded again, whatever a user or a tool wrote."""
    script = {"script": [{}, {"text": "{{message}}|{{last_results}}|{{other}}|{{message}}"}]}
    results = [
        ToolResult("c1", "a", "success", 'say "{{message}}"'),
        ToolResult("c2", "b", "denied", "é"),
    ]
    messages = [_user("{{last_results}}"), _assistant(), *(_results(item) for item in results)]
    found = await Play().reply(script, *messages)
    first, middle, other, last = found.text.split("|")
    assert (first, other, last) == ("{{last_results}}", "{{other}}", "{{last_results}}")
    assert json.loads(middle) == [
        {"tool_use_id": "c1", "name": "a", "state": "success", "content": 'say "{{message}}"'},
        {"tool_use_id": "c2", "name": "b", "state": "denied", "content": "é"},
    ]


async def test_results_are_those_of_the_last_step():
    """One message or several, with a queued user message after them; older steps do not count."""
    script = {"script": [{}, {"text": "{{last_results}}"}, {"text": "{{last_results}}"}]}
    old = ToolResult("c1", "a", "success", "old")
    new = [ToolResult(f"c{n}", "a", "error", f"{n}") for n in (2, 3)]
    history = [_user("x"), _assistant(), _results(old)]
    assert len(json.loads((await Play().reply(script, *history)).text)) == 1
    history += [_assistant(), _results(*new), _user("more")]
    found = json.loads((await Play().reply(script, *history)).text)
    assert [item["content"] for item in found] == ["2", "3"]
    assert (await Play().reply({"script": [{"text": "{{last_results}}"}]}, _user("x"))).text == "[]"


async def test_without_a_script_the_message_is_echoed():
    """On every turn, after the deployment's delay; an absent message is empty."""
    play = Play(default_delay_ms=250)
    assert (await play.reply({}, _user("{{message}}"))).text == "You said: {{message}}"
    history = [_user("a"), _assistant(Text("x")), _user("b")]
    assert (await play.reply({"script": None}, *history)).text == "You said: b"
    assert (await play.reply({})).text == "You said: "
    assert play.slept == [0.25] * 3


async def test_a_turn_may_take_its_time():
    """Its own delay replaces the deployment's."""
    play = Play(default_delay_ms=250)
    await play.reply({"script": [{"delay_ms": 1500}]}, _user("a"))
    await play.reply({"script": [{}]}, _user("a"))
    assert play.slept == [1.5]


async def test_errors_are_counted_in_the_store():
    """The first n tries of the turn fail, in whatever process they happen."""
    script = {"script": [{"text": "fine", "error": {"kind": "overloaded", "times": 2}}]}
    play = Play()
    for _ in range(2):
        with pytest.raises(ModelError) as caught:
            await play.reply(script, _user("a"))
        assert (caught.value.kind, caught.value.retryable) == ("overloaded", True)
    assert (await play.reply(script, _user("a"))).text == "fine"
    assert play.counts == {"script_error:0": 3}


@pytest.mark.parametrize(
    ("kind", "retryable"),
    [
        ("rate_limit", True),
        ("overloaded", True),
        ("server", True),
        ("auth", False),
        ("context", False),
    ],
)
async def test_every_kind_of_error_can_be_scripted(kind, retryable):
    """The kind decides whether trying again is worth it."""
    script = {"script": [{"error": {"kind": kind}}]}
    with pytest.raises(ModelError) as caught:
        await Play().reply(script, _user("a"))
    assert (caught.value.kind, caught.value.retryable) == (kind, retryable)


async def test_text_arrives_in_pieces():
    """A long text streams, a short one comes at once, an empty one not at all."""
    play = Play()
    await play.reply({"script": [{"text": "x" * 1000}]}, _user("a"))
    assert [len(piece) for piece in play.heard] == [250] * 4
    await play.reply({"script": [{"text": "short"}]}, _user("a"))
    assert play.heard == ["short"]
    await play.reply({"script": [{}]}, _user("a"))
    assert play.heard == []


async def test_usage_grows_with_the_conversation():
    """The counts are made up but plausible, and never zero."""
    script = {"script": [{"text": "x" * 400}]}
    short = (await Play().reply(script, _user("a"))).usage
    long = (await Play().reply(script, _user("a" * 4000))).usage
    assert (short.input_tokens, short.output_tokens) == (1, 100)
    assert long.input_tokens == 1000


@pytest.mark.parametrize(
    "metadata",
    [
        None,
        {},
        {"script": None},
        {"script": []},
        {"script": [{}]},
        {"script": [{"text": None, "tool_calls": None, "plan": None, "delay_ms": None}]},
        {"script": [{"error": None, "comment": "other keys are left alone"}]},
        {"script": [{"tool_calls": [], "delay_ms": 0.5, "error": {"kind": "auth", "times": 0}}]},
    ],
)
def test_good_scripts_pass(metadata):
    """Every part is optional, and null is the same as leaving it out."""
    check_script(metadata)


@pytest.mark.parametrize(
    ("script", "field"),
    [
        ({}, ""),
        ("text", ""),
        ([[]], "[0]"),
        ([{}, "x"], "[1]"),
        ([{"text": 1}], "[0].text"),
        ([{"plan": {}}], "[0].plan"),
        ([{"tool_calls": {}}], "[0].tool_calls"),
        ([{"tool_calls": ["a"]}], "[0].tool_calls[0]"),
        ([{"tool_calls": [{"input": {}}]}], "[0].tool_calls[0].name"),
        ([{"tool_calls": [{"name": "", "input": {}}]}], "[0].tool_calls[0].name"),
        ([{"tool_calls": [{"name": "a", "input": "{}"}]}], "[0].tool_calls[0].input"),
        ([{}, {"tool_calls": [{"name": "a"}, {"name": 3}]}], "[1].tool_calls[1].name"),
        ([{"tool_calls": [{"name": "a", "id": 5}]}], "[0].tool_calls[0].id"),
        ([{"tool_calls": [{"name": "a", "id": ""}]}], "[0].tool_calls[0].id"),
        ([{"delay_ms": "5"}], "[0].delay_ms"),
        ([{"delay_ms": True}], "[0].delay_ms"),
        ([{"delay_ms": -1}], "[0].delay_ms"),
        ([{"delay_ms": 1e12}], "[0].delay_ms"),
        ([{"delay_ms": float("nan")}], "[0].delay_ms"),
        ([{"error": "server"}], "[0].error"),
        ([{"error": {}}], "[0].error.kind"),
        ([{"error": {"kind": "other"}}], "[0].error.kind"),
        ([{"error": {"kind": ["auth"]}}], "[0].error.kind"),
        ([{"error": {"kind": "auth", "times": "2"}}], "[0].error.times"),
        ([{"error": {"kind": "auth", "times": True}}], "[0].error.times"),
        ([{"error": {"kind": "auth", "times": -1}}], "[0].error.times"),
    ],
    ids=repr,
)
async def test_bad_scripts_are_named_by_path(script, field):
    """The API refuses them; a worker that meets one all the same fails the run at once."""
    with pytest.raises(InvalidFieldError) as caught:
        check_script({"script": script})
    assert caught.value.code == "invalid_script"
    assert caught.value.field == f"metadata.script{field}"
    if not field or field.startswith("[0]"):
        with pytest.raises(ModelError) as failed:
            await Play().reply({"script": script}, _user("a"))
        assert not failed.value.retryable


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(
        st.sampled_from(["text", "tool_calls", "plan", "delay_ms", "error", "kind", "times",
                         "id", "name", "input"]), inner),
)  # fmt: skip


@given(JSON)
def test_any_script_passes_or_is_refused(script):
    """No JSON makes the check raise anything but its own error."""
    try:
        check_script({"script": script})
    except InvalidFieldError as error:
        assert (error.field or "").startswith("metadata.script")  # noqa: PT017 - either is right
