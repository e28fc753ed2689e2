"""The real providers, reached through pydantic-ai's single-request interface."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

import httpx
import httpx2
from pydantic_ai import exceptions as failures
from pydantic_ai import messages as wire
from pydantic_ai.direct import model_request_stream
from pydantic_ai.models import Model as VendorModel
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.settings import ModelSettings
from pydantic_ai.tools import ToolDefinition

from signoff import strictjson
from signoff.domain.error import SignoffError
from signoff.domain.message import Message, ResultState, Text, ToolResult, ToolUse
from signoff.strictjson import well_formed
from workers.model.port import Count, ModelError, ModelReply, ModelRequest, OnText, ToolSpec, Usage
from workers.model.price import cost_micros

if TYPE_CHECKING:
    from anthropic import AsyncAnthropic
    from openai import AsyncOpenAI

# Between two pieces of the stream: reasoning models may think in silence for minutes.
SILENCE_S = 300.0
CONNECT_S = 10.0
# What a model wrote instead of a JSON object; no schema of ours has such a field, so the strict
# check answers the model with an error and it tries again.
INVALID_JSON = "INVALID_JSON"
PLAN_MODE = (
    "You are in plan mode. Explore with read-only tools, then present a plan with ExitPlanMode "
    "and wait for its approval before you use any other tool."
)

_Outcome = Literal["success", "failed", "denied", "interrupted"]
_OUTCOMES: dict[ResultState, _Outcome] = {
    "success": "success",
    "error": "failed",
    "denied": "denied",
    "interrupted": "interrupted",
}
# Nothing wider: what on_text raises must reach the engine as it is.
_PROVIDER_ERRORS = (
    failures.AgentRunError,
    failures.UserError,
    httpx.HTTPError,
    httpx2.HTTPError,
)


class ProviderModel:
    """Models named ``anthropic:…`` and ``openai:…``, with one client for each provider.

    OpenAI is spoken to by chat completions, the one form that compatible servers share. The SDKs
    do not retry: the engine does, and it counts.
    """

    def __init__(
        self,
        *,
        anthropic_api_key: str | None = None,
        openai_api_key: str | None = None,
        openai_base_url: str | None = None,
    ) -> None:
        """Nothing is opened before the first request, which binds the clients to its loop."""
        self._anthropic_api_key = anthropic_api_key
        self._openai_api_key = openai_api_key
        self._openai_base_url = openai_base_url
        self._models: dict[str, VendorModel[Any]] = {}
        self._anthropic: AsyncAnthropic | None = None
        self._openai: AsyncOpenAI | None = None

    async def reply(self, request: ModelRequest, *, on_text: OnText, count: Count) -> ModelReply:
        """The provider's reply, streamed.

        Its failures become ModelError: 429 is ``rate_limit``; 503 and 529 ``overloaded``; other
        5xx, timeouts and broken connections ``server``; 401, 403 and 404 (a model this key cannot
        use) ``auth``; an input beyond the window ``context``. Never worth a second try, whatever
        their kind: an exhausted quota (``rate_limit``), and a request or an answer refused for
        another reason (``server``, since neither the key nor the length is at fault).
        """
        del count
        model = self._model(request.model)
        try:
            answer = await _stream(model, request, on_text)
        except _PROVIDER_ERRORS as error:
            raise _failure(error) from error
        # Whose server answers at an address of one's own, and at what price, is not known.
        own = self._openai_base_url is not None and request.model.startswith("openai:")
        return _reply(answer, cost=0 if own else cost_micros(answer))

    async def aclose(self) -> None:
        """Close the clients' connections; the next request would open new ones."""
        clients = (self._anthropic, self._openai)
        self._anthropic = self._openai = None
        self._models.clear()
        await asyncio.gather(*(client.close() for client in clients if client is not None))

    def _model(self, name: str) -> VendorModel[Any]:
        if name not in self._models:
            vendor, _, short = name.partition(":")
            if vendor == "anthropic":
                self._models[name] = self._anthropic_model(short)
            elif vendor == "openai":
                self._models[name] = self._openai_model(short)
            else:
                msg = f"no provider is called {vendor!r}"
                raise ModelError("auth", msg)
        return self._models[name]

    # The vendors' SDKs are heavy: a worker loads the ones it uses.
    def _anthropic_model(self, name: str) -> VendorModel[Any]:
        from anthropic import AsyncAnthropic  # noqa: PLC0415
        from pydantic_ai.models.anthropic import AnthropicModel  # noqa: PLC0415
        from pydantic_ai.providers.anthropic import AnthropicProvider  # noqa: PLC0415

        if self._anthropic is None:
            if self._anthropic_api_key is None:
                raise ModelError("auth", "ANTHROPIC_API_KEY is not set")
            self._anthropic = AsyncAnthropic(
                api_key=self._anthropic_api_key,
                max_retries=0,
                timeout=httpx2.Timeout(SILENCE_S, connect=CONNECT_S),
            )
        return AnthropicModel(
            name,
            provider=AnthropicProvider(anthropic_client=self._anthropic),
            settings=ModelSettings(cache=True),  # otherwise each step pays for all before it
        )

    def _openai_model(self, name: str) -> VendorModel[Any]:
        from openai import AsyncOpenAI  # noqa: PLC0415
        from pydantic_ai.models.openai import OpenAIChatModel  # noqa: PLC0415
        from pydantic_ai.profiles.openai import OpenAIModelProfile  # noqa: PLC0415
        from pydantic_ai.providers.openai import OpenAIProvider  # noqa: PLC0415

        if self._openai is None:
            if self._openai_api_key is None and self._openai_base_url is None:
                raise ModelError("auth", "OPENAI_API_KEY is not set")
            self._openai = AsyncOpenAI(
                api_key=self._openai_api_key or "none",  # own servers often want no key
                base_url=self._openai_base_url,
                max_retries=0,
                timeout=httpx2.Timeout(SILENCE_S, connect=CONNECT_S),
            )
        return OpenAIChatModel(
            name,
            provider=OpenAIProvider(openai_client=self._openai),
            # By default, a stream that is cut off counts as an answer that stopped.
            profile=OpenAIModelProfile(openai_chat_streaming_requires_finish_reason=True),
        )


async def _stream(
    model: VendorModel[Any], request: ModelRequest, on_text: OnText
) -> wire.ModelResponse:
    parameters = _parameters(request)
    async with model_request_stream(
        model, _history(request), model_request_parameters=parameters
    ) as stream:
        async for event in stream:
            piece = ""
            if isinstance(event, wire.PartStartEvent) and isinstance(event.part, wire.TextPart):
                piece = event.part.content
            elif isinstance(event, wire.PartDeltaEvent) and isinstance(
                event.delta, wire.TextPartDelta
            ):
                piece = event.delta.content_delta
            if piece:
                await on_text(well_formed(piece))
        return stream.get()


def _parameters(request: ModelRequest) -> ModelRequestParameters:
    tools = [_tool(spec) for spec in request.tools]
    if request.output is None:
        return ModelRequestParameters(function_tools=tools)
    # Not the providers' own structured answers: those end the turn, and only some of them go
    # together with tools. A tool that must be called is understood by all.
    return ModelRequestParameters(
        function_tools=tools,
        output_mode="tool",
        output_tools=[replace(_tool(request.output), kind="output")],
        allow_text_output=False,
    )


def _tool(spec: ToolSpec) -> ToolDefinition:
    return ToolDefinition(
        name=spec.name,
        description=spec.description or None,
        parameters_json_schema=spec.input_schema,
    )


def _history(request: ModelRequest) -> list[wire.ModelMessage]:
    """The conversation as the library's alternating requests and responses."""
    history: list[wire.ModelMessage] = []
    for message in request.messages:
        if message.role == "assistant":
            parts = _spoken(message)
            if parts:
                history.append(wire.ModelResponse(parts=parts))
            continue
        last = history[-1] if history else None
        if isinstance(last, wire.ModelRequest):
            history[-1] = wire.ModelRequest(parts=[*last.parts, *_heard(message)])
        else:
            history.append(wire.ModelRequest(parts=_heard(message)))
    instructions = [request.instructions, PLAN_MODE if request.plan_mode else None]
    text = "\n\n".join(part for part in instructions if part) or None
    last = history[-1] if history else None
    if isinstance(last, wire.ModelRequest):
        history[-1] = wire.ModelRequest(parts=last.parts, instructions=text)
    return history


def _spoken(message: Message) -> list[wire.ModelResponsePart]:
    parts: list[wire.ModelResponsePart] = []
    for block in message.blocks:
        if isinstance(block, Text) and block.text:
            parts.append(wire.TextPart(content=block.text))
        elif isinstance(block, ToolUse):
            parts.append(
                wire.ToolCallPart(tool_name=block.name, args=block.input, tool_call_id=block.id)
            )
    return parts


def _heard(message: Message) -> Sequence[wire.ModelRequestPart]:
    parts: list[wire.ModelRequestPart] = []
    for block in message.blocks:
        if isinstance(block, ToolResult):
            parts.append(
                wire.ToolReturnPart(
                    tool_name=block.name,
                    content=block.content,
                    tool_call_id=block.tool_use_id,
                    outcome=_OUTCOMES[block.state],
                )
            )
        elif isinstance(block, Text):
            parts.append(wire.UserPromptPart(content=block.text))
    return parts


def _reply(answer: wire.ModelResponse, *, cost: int) -> ModelReply:
    # A connection that a proxy closes in order looks like the end of a whole answer.
    if answer.finish_reason is None and not (answer.provider_details or {}).get("finish_reason"):
        raise ModelError("server", "the stream ended before the answer did")
    text = "".join(part.content for part in answer.parts if isinstance(part, wire.TextPart))
    calls = tuple(
        ToolUse(id=part.tool_call_id, name=well_formed(part.tool_name), input=_arguments(part))
        for part in answer.parts
        if isinstance(part, wire.ToolCallPart)
    )
    if answer.finish_reason == "content_filter" and not calls:
        raise ModelError("server", "the provider withheld the answer", retryable=False)
    return ModelReply(
        text=well_formed(text),
        tool_calls=calls,
        usage=Usage(
            input_tokens=answer.usage.input_tokens,
            output_tokens=answer.usage.output_tokens,
            cache_read_tokens=answer.usage.cache_read_tokens,
            cache_creation_tokens=answer.usage.cache_write_tokens,
            cost_micros=cost,
        ),
    )


def _arguments(part: wire.ToolCallPart) -> dict[str, Any]:
    """The input as strict JSON, so that no later reader can see another value in it."""
    if not part.args:
        return {}
    raw = part.args if isinstance(part.args, str) else part.args_as_json_str()
    try:
        value = strictjson.loads(raw.encode("utf-8", "surrogatepass"))
    except SignoffError:
        value = None
    return value if isinstance(value, dict) else {INVALID_JSON: well_formed(raw)}


def _failure(error: Exception) -> ModelError:
    retry_after = getattr(error, "retry_after", None)
    message = well_formed(f"{type(error).__name__.strip('_')}: {error}")[:2000]
    match error:
        case failures.ModelRateLimitError():
            return ModelError("rate_limit", message, retry_after_s=retry_after)
        case failures.ModelQuotaExceededError():
            return ModelError("rate_limit", message, retryable=False)
        case failures.ModelUnavailableError():
            return ModelError("overloaded", message, retry_after_s=retry_after)
        case failures.ModelContextWindowExceededError():
            return ModelError("context", message)
        case failures.ModelAuthenticationError() | failures.ModelNotFoundError():
            return ModelError("auth", message)
        case failures.ModelRequestRejectedError() | failures.ContentFilterError():
            return ModelError("server", message, retryable=False)
        case failures.UserError():
            return ModelError("server", message, retryable=False)
        case _:
            return ModelError("server", message, retry_after_s=retry_after)
