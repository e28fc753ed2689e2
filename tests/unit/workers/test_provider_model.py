"""The real providers' adapter, against a server that speaks OpenAI's wire on a real socket."""

import json
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from pydantic_ai import messages as wire_of
from pydantic_ai.usage import RequestUsage

from signoff.domain.error import SignoffError
from signoff.domain.message import Message, ResultState, Text, ToolResult, ToolUse
from tests.provider_wire import Wire, provider_wire, tool_delta
from workers.model import provider
from workers.model.port import ModelError, ModelReply, ModelRequest, ToolSpec
from workers.model.price import cost_micros
from workers.model.provider import INVALID_JSON, PLAN_MODE, ProviderModel
from workers.model.routed import RoutedModel
from workers.model.scripted import ScriptedModel

pytestmark = pytest.mark.anyio

SEARCH = ToolSpec(
    name="search",
    description="Search.",
    input_schema={
        "type": "object",
        "properties": {"query": {"type": "string"}, "limit": {"type": "integer"}},
        "required": ["query"],
        "additionalProperties": False,
    },
)


@pytest.fixture
def anyio_backend():
    return "asyncio"


@pytest.fixture
def wire() -> Iterator[Wire]:
    """A running stub."""
    with provider_wire() as found:
        yield found


@pytest.fixture
async def claude(wire, monkeypatch):
    """An adapter whose Anthropic client talks to the stub."""
    monkeypatch.setenv("ANTHROPIC_BASE_URL", wire.url.removesuffix("/v1"))
    found = ProviderModel(anthropic_api_key="sk-ant")
    yield found
    await found.aclose()


@pytest.fixture
async def model(wire):
    """An adapter that talks to the stub."""
    found = ProviderModel(openai_api_key="sk-test", openai_base_url=wire.url)
    yield found
    await found.aclose()


def _request(*messages: Message, **changes: Any) -> ModelRequest:
    plain: dict[str, Any] = {
        "run_id": 1,
        "turn": 1,
        "model": "openai:gpt-x",
        "instructions": "Be brief.",
        "messages": messages or (_user("hello"),),
        "tools": (SEARCH,),
        "metadata": {},
        "plan_mode": False,
    }
    return ModelRequest(**(plain | changes))


def _user(text: str) -> Message:
    return Message(role="user", blocks=(Text(text),), turn=1, step=0)


def _result(call_id: str, state: ResultState) -> Message:
    block = ToolResult(call_id, "search", state, "text")
    return Message(role="tool", blocks=(block,), turn=1, step=1)


async def _no_count(_name: str) -> int:
    raise AssertionError


async def _ask(
    model: ProviderModel | RoutedModel, request: ModelRequest | None = None
) -> tuple[ModelReply, list[str]]:
    heard: list[str] = []

    async def on_text(piece: str) -> None:
        heard.append(piece)

    reply = await model.reply(request or _request(), on_text=on_text, count=_no_count)
    return reply, heard


async def test_text_is_streamed_and_counted(model, wire):
    """The pieces arrive as they were sent; text and usage are those of the whole."""
    wire.say({"role": "assistant", "content": "Hel"}, {"content": "lo é"})
    reply, heard = await _ask(model)
    assert heard == ["Hel", "lo é"]
    assert (reply.text, reply.tool_calls) == ("Hello é", ())
    assert (reply.usage.input_tokens, reply.usage.output_tokens) == (50, 7)
    assert (reply.usage.cache_read_tokens, reply.usage.cache_creation_tokens) == (20, 0)
    assert wire.keys == ["Bearer sk-test"]


async def test_tool_calls_come_with_the_providers_ids(model, wire):
    """Several calls in pieces, in the order the model asked for them, with types kept."""
    wire.say(
        {"role": "assistant", "content": "Let me see."},
        tool_delta(0, "", id="call_a", name="search"),
        tool_delta(0, '{"query": "x", '),
        tool_delta(0, '"limit": 3}'),
        tool_delta(1, '{"query": "1.0"}', id="call_b", name="search"),
        tool_delta(2, "", id="call_c", name="other"),
        finish="tool_calls",
    )
    reply, heard = await _ask(model)
    assert reply.text == "".join(heard) == "Let me see."
    assert reply.tool_calls == (
        ToolUse("call_a", "search", {"query": "x", "limit": 3}),
        ToolUse("call_b", "search", {"query": "1.0"}),
        ToolUse("call_c", "other", {}),
    )


@pytest.mark.parametrize(
    "arguments",
    [
        '{"query": ',
        "[1]",
        '"x"',
        '{"query": "a", "query": "b"}',
        '{"query": NaN}',
        '{"query": "\\ud800"}',
        '{"query": "\\u0000"}',
        '{"query": ' + "[" * 100 + "]" * 100 + "}",
    ],
)
async def test_input_that_is_not_strict_json_is_kept_as_text(model, wire, arguments):
    """No schema accepts it, so that the model is told instead of a person being asked."""
    wire.say(tool_delta(0, arguments, id="call_a", name="search"), finish="tool_calls")
    reply, _ = await _ask(model)
    assert reply.tool_calls == (ToolUse("call_a", "search", {INVALID_JSON: arguments}),)


async def test_lone_surrogates_do_not_get_in(model, wire):
    """Half a character is replaced, in the stream and in the text that is stored."""
    wire.say({"role": "assistant", "content": "a\ud83d"})
    reply, heard = await _ask(model)
    assert reply.text == "a\ufffd"
    assert heard == ["a\ufffd"]


async def test_the_conversation_is_sent_in_the_providers_form(model, wire):
    """Instructions, users, answers, calls and results all arrive, results by their call's id."""
    wire.say({"content": "ok"})
    await _ask(
        model,
        _request(
            _user("find x"),
            Message(
                role="assistant",
                blocks=(Text("Sure."), ToolUse("c1", "search", {"query": "x"}),
                        ToolUse("c2", "search", {"query": "y"})),
                turn=1, step=1,
            ),
            Message(role="tool", blocks=(ToolResult("c1", "search", "success", "found"),),
                    turn=1, step=1),
            Message(role="tool", blocks=(ToolResult("c2", "search", "denied", "The user denied"),),
                    turn=1, step=1),
            Message(role="assistant", blocks=(Text(""),), turn=1, step=2),
            _user("and now?"),
            _user("hurry"),
        ),
    )  # fmt: skip
    (sent,) = wire.requests
    assert sent["model"] == "gpt-x"
    assert sent["stream"] is True
    (system, *rest) = sent["messages"]
    assert system["content"] == "Be brief."
    assert [message["role"] for message in rest] == ["user", "assistant", "tool", "tool", "user",
                                                     "user"]  # fmt: skip
    assert rest[0]["content"] == "find x"
    calls = rest[1]["tool_calls"]
    assert [(call["id"], json.loads(call["function"]["arguments"])) for call in calls] == [
        ("c1", {"query": "x"}),
        ("c2", {"query": "y"}),
    ]
    assert [(message["tool_call_id"], message["content"]) for message in rest[2:4]] == [
        ("c1", "found"),
        ("c2", "The user denied"),
    ]
    (offered,) = sent["tools"]
    assert offered["function"]["name"] == "search"
    assert offered["function"]["description"] == "Search."
    assert set(offered["function"]["parameters"]["properties"]) == {"query", "limit"}
    assert offered["function"]["parameters"]["required"] == ["query"]


async def test_an_owed_output_is_a_tool_that_must_be_called(model, wire):
    """Words are no answer then; an earlier refusal goes back with its call."""
    wire.say(tool_delta(0, '{"total": 3}', name="SubmitOutput", id="o2"), finish="tool_calls")
    schema = {
        "type": "object",
        "properties": {"total": {"type": "integer"}},
        "required": ["total"],
        "additionalProperties": False,
    }
    output = ToolSpec(name="SubmitOutput", description="Give it.", input_schema=schema)
    first = ToolUse("o1", "SubmitOutput", {"total": "3"})
    refused = ToolResult("o1", "SubmitOutput", "error", "Invalid output")
    reply, _ = await _ask(
        model,
        _request(
            _user("count"),
            Message(role="assistant", blocks=(first,), turn=1, step=1),
            Message(role="tool", blocks=(refused,), turn=1, step=1),
            tools=(SEARCH,),
            output=output,
        ),
    )
    assert reply.tool_calls == (ToolUse("o2", "SubmitOutput", {"total": 3}),)
    (sent,) = wire.requests
    assert [tool["function"]["name"] for tool in sent["tools"]] == ["search", "SubmitOutput"]
    assert sent["tools"][1]["function"]["parameters"]["properties"] == schema["properties"]
    assert sent["tool_choice"] == "required"
    (call,) = sent["messages"][2]["tool_calls"]
    assert (call["id"], sent["messages"][3]["tool_call_id"]) == ("o1", "o1")


def priced(name: str | None, **usage: Any) -> int:
    return cost_micros(
        wire_of.ModelResponse(
            parts=[],
            usage=RequestUsage(**usage),
            model_name=name,
            provider_name="anthropic",
        )
    )


def test_a_reply_is_priced_where_its_model_is_known():
    """In whole millionths, more for more tokens; what has no price costs nothing."""
    one = priced("claude-sonnet-4-5", input_tokens=1000)
    assert 0 < one < priced("claude-sonnet-4-5", input_tokens=1000, output_tokens=1000)
    assert isinstance(one, int)
    assert priced("no-such-model", input_tokens=1000) == priced(None, input_tokens=1000) == 0


async def test_plan_mode_is_explained(model, wire):
    """The model is told to plan, with the agent's own instructions before."""
    wire.say({"content": "ok"})
    await _ask(model, _request(plan_mode=True))
    await _ask(model, _request(plan_mode=True, instructions=None))
    told = ["\n\n".join(m["content"] for m in r["messages"][:-1]) for r in wire.requests]
    assert told == [f"Be brief.\n\n{PLAN_MODE}", PLAN_MODE]


@pytest.mark.parametrize(
    ("status", "error", "kind", "retryable"),
    [
        (429, {"code": "rate_limit_exceeded"}, "rate_limit", True),
        (429, {"code": "insufficient_quota"}, "rate_limit", False),
        (503, {}, "overloaded", True),
        (529, {}, "overloaded", True),
        (500, {}, "server", True),
        (502, {}, "server", True),
        (401, {"code": "invalid_api_key"}, "auth", False),
        (403, {}, "auth", False),
        (404, {"code": "model_not_found"}, "auth", False),
        (400, {"code": "context_length_exceeded"}, "context", False),
        (400, {"code": "invalid_value"}, "server", False),
        (422, {}, "server", False),
    ],
)
async def test_refusals_have_a_kind(model, wire, *, status, error, kind, retryable):
    """Each status is one request to the provider and one ModelError of the right kind."""
    wire.refuse(status, **error)
    with pytest.raises(ModelError) as caught:
        await _ask(model)
    assert (caught.value.kind, caught.value.retryable) == (kind, retryable)
    assert str(status) in caught.value.message
    assert "sk-test" not in caught.value.message
    assert len(wire.requests) == 1


async def test_the_wait_that_is_asked_for_is_passed_on(model, wire):
    """Retry-After is there for the engine, which does all waiting."""
    wire.refuse(429)
    wire.headers["retry-after"] = "7"
    with pytest.raises(ModelError) as caught:
        await _ask(model)
    assert caught.value.retry_after_s == 7


async def test_a_refused_connection_is_a_server_error(wire):
    """Nobody listens: worth another try."""
    model = ProviderModel(openai_base_url="http://127.0.0.1:1/v1")
    with pytest.raises(ModelError) as caught:
        await _ask(model)
    await model.aclose()
    assert (caught.value.kind, caught.value.retryable) == ("server", True)


async def test_a_stream_that_breaks_off_is_a_server_error(model, wire):
    """Half an answer is none, even when all its pieces so far were good."""
    wire.say({"role": "assistant", "content": "Hel"})
    wire.chunks = wire.chunks[:1]
    wire.cut_off = True
    with pytest.raises(ModelError) as caught:
        await _ask(model)
    assert (caught.value.kind, caught.value.retryable) == ("server", True)


async def test_a_withheld_answer_is_final(model, wire):
    """A content filter gives the same answer again."""
    wire.say({"role": "assistant", "content": ""}, finish="content_filter")
    with pytest.raises(ModelError) as caught:
        await _ask(model)
    assert not caught.value.retryable


@pytest.mark.parametrize("error", [SignoffError("lost"), TimeoutError("lost"), OSError("lost")])
async def test_errors_of_the_listener_are_not_the_providers(model, wire, error):
    """A lost lease or store reaches the engine as itself."""
    wire.say({"role": "assistant", "content": "Hello"})

    async def on_text(_piece: str) -> None:
        raise error

    with pytest.raises(type(error), match="lost"):
        await model.reply(_request(), on_text=on_text, count=_no_count)


async def test_a_server_without_a_key_can_be_used(wire):
    """Compatible servers often want none; the client is made again after it was closed."""
    wire.say({"content": "ok"})
    model = ProviderModel(openai_base_url=wire.url)
    for _ in range(2):
        reply, _ = await _ask(model)
        assert reply.text == "ok"
        await model.aclose()


@pytest.mark.parametrize("name", ["anthropic:claude-x", "openai:gpt-x", "other:x", "plain"])
async def test_without_a_key_nothing_is_sent(name):
    """A run that names a provider whose key was taken away fails at once."""
    with pytest.raises(ModelError) as caught:
        await _ask(ProviderModel(), _request(model=name))
    assert caught.value.kind == "auth"


CLAUDE_ANSWER: list[dict[str, Any]] = [
    {
        "type": "message_start",
        "message": {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "model": "claude-x",
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": {
                "input_tokens": 10,
                "output_tokens": 1,
                "cache_read_input_tokens": 5,
                "cache_creation_input_tokens": 3,
            },
        },
    },
    {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Hel"}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "lo"}},
    {"type": "content_block_stop", "index": 0},
    {
        "type": "content_block_start",
        "index": 1,
        "content_block": {"type": "tool_use", "id": "toolu_1", "name": "search", "input": {}},
    },
    {
        "type": "content_block_delta",
        "index": 1,
        "delta": {"type": "input_json_delta", "partial_json": '{"query": "x"}'},
    },
    {"type": "content_block_stop", "index": 1},
    {
        "type": "message_delta",
        "delta": {"stop_reason": "tool_use", "stop_sequence": None},
        "usage": {"output_tokens": 9},
    },
    {"type": "message_stop"},
]


async def test_anthropic_is_spoken_too(claude, wire):
    """Text, a call and the usage, of which the cached tokens are a part."""
    wire.chunks = CLAUDE_ANSWER
    reply, heard = await _ask(claude, _request(model="anthropic:claude-x"))
    assert heard == ["Hel", "lo"]
    assert reply.text == "Hello"
    assert reply.tool_calls == (ToolUse("toolu_1", "search", {"query": "x"}),)
    usage = reply.usage
    assert (usage.input_tokens, usage.output_tokens) == (18, 9)
    assert (usage.cache_read_tokens, usage.cache_creation_tokens) == (5, 3)
    assert wire.requests[0]["system"][0]["text"] == "Be brief."
    assert "cache_control" in json.dumps(wire.requests[0])


async def test_anthropic_results_follow_their_calls(claude, wire):
    """All results of a step are one user message, with errors marked as such."""
    wire.chunks = CLAUDE_ANSWER
    uses = (ToolUse("t1", "search", {"query": "x"}), ToolUse("t2", "search", {"query": "y"}))
    history = (
        _user("find"),
        Message(role="assistant", blocks=uses, turn=1, step=1),
        _result("t1", "success"),
        _result("t2", "error"),
        _user("hurry"),
    )
    await _ask(claude, _request(*history, model="anthropic:claude-x"))
    sent = wire.requests[0]["messages"]
    assert [message["role"] for message in sent] == ["user", "assistant", "user"]
    found = [(part["type"], part.get("tool_use_id"), part.get("is_error")) for part in
             sent[2]["content"]]  # fmt: skip
    assert found == [
        ("tool_result", "t1", False),
        ("tool_result", "t2", True),
        ("text", None, None),
    ]


@pytest.mark.parametrize(
    ("status", "error", "kind"),
    [
        (429, {"type": "rate_limit_error"}, "rate_limit"),
        (529, {"type": "overloaded_error"}, "overloaded"),
        (500, {"type": "api_error"}, "server"),
        (401, {"type": "authentication_error"}, "auth"),
        (
            400,
            {"type": "invalid_request_error", "message": "prompt is too long: 9 tokens > 8"},
            "context",
        ),
    ],
)
async def test_anthropic_refusals_have_a_kind(claude, wire, status, error, kind):
    """The same kinds as for the other provider, from one request."""
    wire.status, wire.body = status, {"type": "error", "error": {"message": "no", **error}}
    with pytest.raises(ModelError) as caught:
        await _ask(claude, _request(model="anthropic:claude-x"))
    assert caught.value.kind == kind
    assert len(wire.requests) == 1


async def test_an_anthropic_stream_that_breaks_off_is_a_server_error(claude, wire):
    """Here too, half an answer is none."""
    wire.chunks = CLAUDE_ANSWER[:5]
    wire.cut_off = True
    with pytest.raises(ModelError) as caught:
        await _ask(claude, _request(model="anthropic:claude-x"))
    assert (caught.value.kind, caught.value.retryable) == ("server", True)


async def test_requests_go_to_whoever_has_the_name(wire):
    """The scripted model answers to its own name, the provider to the others."""
    wire.say({"content": "from the wire"})
    routed = RoutedModel(scripted=ScriptedModel(), openai_base_url=wire.url)
    assert (await _ask(routed, _request(model="scripted")))[0].text == "You said: hello"
    assert (await _ask(routed))[0].text == "from the wire"
    await routed.aclose()
    with pytest.raises(ModelError) as caught:
        await _ask(RoutedModel(scripted=None), _request(model="scripted"))
    assert caught.value.kind == "auth"


async def test_a_missing_extra_is_named(monkeypatch):
    """Without pydantic-ai the run fails with the line that installs it."""
    monkeypatch.setitem(sys.modules, provider.__name__, None)
    with pytest.raises(ModelError, match=r"signoff\[models\]"):
        await _ask(RoutedModel(scripted=None, openai_api_key="sk"))
