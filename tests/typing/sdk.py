"""Calls of the SDK as its users write them: checked by mypy and pyright, never run.

A line with ``type: ignore`` must be refused: mypy reports an ignore that is not needed.
"""

from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from typing import Any, assert_type

import signoff
from signoff import (
    AsyncClient,
    Client,
    SignatureError,
    current_call,
    sign_decision,
    tool,
    verify,
)
from signoff.client import (
    Agent,
    Allow,
    Deny,
    Frame,
    Page,
    PermissionRequest,
    Policy,
    Run,
    User,
    errors,
)
from signoff.client.overview import (
    AgentActivity,
    AuditEntry,
    Check,
    EndUserUsage,
    Event,
    NeedsYou,
    Outcome,
    Settings,
    Share,
)
from signoff.client.values import Answered, Decided
from signoff.signing import Verified, verify_hex
from signoff.testing import FakeService, signed_webhook
from signoff.tooldef import CallContext, Tool


def verifying(body: bytes, headers: Mapping[str, str], secrets: Sequence[str]) -> None:
    assert_type(verify(body, headers, "whsec_..."), Verified)
    assert_type(verify(body, headers, secrets), Verified)
    assert_type(verify(body, headers, secrets, now=1.5, tolerance=60), Verified)
    assert_type(verify(body, list(headers.items()), secrets), Verified)
    assert_type(verify_hex(body, headers, secrets), Verified)
    assert_type(verify(body, headers, secrets).msg_id, str)
    assert_type(verify(body, headers, secrets).timestamp, int)
    verify("text", headers, secrets)  # type: ignore[arg-type]
    verify(body, headers)  # type: ignore[call-arg]
    verify(body, headers, secrets, 1.5)  # type: ignore[call-arg]


def asgi_headers(body: bytes, headers: list[tuple[bytes, bytes]], secret: str) -> None:
    assert_type(verify(body, headers, secret), Verified)


def refused(body: bytes, headers: Mapping[str, str], secret: str) -> str:
    try:
        verify(body, headers, secret)
    except SignatureError as error:
        assert_type(error.reason, str)
        assert_type(error.code, str)
        assert_type(error.message, str)
    return ""


def deciding(body: bytes) -> None:
    headers = sign_decision("whsec_...", body, msg_id="dec_1", timestamp=1_700_000_000)
    assert_type(headers, dict[str, str])
    sign_decision("whsec_...", body)  # type: ignore[call-arg]


@tool
def plain(query: str) -> str:
    """Search."""
    return query


@tool(read_only=True, idempotent=True, timeout=5, patterns="path", name="Read")
async def configured(path: str) -> str:
    """Read."""
    return path


def declared() -> None:
    assert_type(plain, Tool)
    assert_type(configured, Tool)
    assert_type(plain.name, str)
    assert_type(plain.input_schema, dict[str, Any])
    assert_type(tool(external=True), Callable[[Callable[..., Any]], Tool])
    tool(patterns="regex")  # type: ignore[call-overload]


def inside_a_tool() -> None:
    assert_type(current_call(), CallContext)
    assert_type(current_call().idempotency_key, str)
    assert_type(current_call().attempt, int)


def surface() -> None:
    assert_type(signoff.__version__, str)
    _ = signoff.nonsense  # type: ignore[attr-defined]


def calling(client: Client) -> None:
    run = client.runs.create("Write to Ada", permission_mode="approval", human_in_the_loop=True)
    assert_type(run, Run)
    assert_type(client.runs.wait(run.id, on_approval=approving, timeout=60.0), Run)
    assert_type(client.runs.create_and_wait("go", on_question=answering, tools=["a"]), Run)
    assert_type(client.runs.reply_and_wait(run.id, "go on", on_plan=lambda _: "Approve"), Run)
    assert_type(client.runs.permissions(run.id), list[PermissionRequest])
    assert_type(client.runs.approve(run.id, "req_1", "deny", reason="no"), PermissionRequest)
    assert_type(client.runs.answer(run.id, {"Which?": ["A", "B"]}), Answered)
    assert_type(client.runs.decide(run.id, [{"request_id": "r", "decision": "allow"}]), Decided)
    assert_type(client.runs.stream(run.id), Iterator[Frame])
    assert_type(client.runs.list(status="running"), Page[Run])
    assert_type(client.runs.each(user_id="u"), Iterator[Run])
    assert_type(client.requests.list(tool="send_email").data, list[PermissionRequest])
    assert_type(client.permissions.create("send_email", effect="deny"), Policy)
    assert_type(client.webhooks.create("https://example.com/hooks").secret, str | None)
    assert_type(client.users.update("u", run_limit=None), User)
    assert_type(client.agents.create("Assistant", model="scripted"), Agent)
    client.runs.create("go", permission_mode="yolo")  # type: ignore[arg-type]
    client.runs.create("go", permision_mode="plan")  # type: ignore[call-arg]
    client.runs.wait(run.id, on_approval=answering)  # type: ignore[arg-type]
    client.runs.approve(run.id, "req_1", "maybe")  # type: ignore[arg-type]


async def calling_async(client: AsyncClient) -> None:
    run = await client.runs.create("Write to Ada", agent_id=1)
    assert_type(run, Run)
    assert_type(await client.runs.wait(run.id, on_approval=approving_later), Run)
    assert_type(client.runs.stream(run.id), AsyncIterator[Frame])
    assert_type([item async for item in client.requests.each()], list[PermissionRequest])


def approving(request: PermissionRequest) -> Allow | Deny:
    assert_type(request.is_plan_approval, bool)
    assert_type(request.plan_text, str | None)
    return Deny(reason="no") if request.tool_name == "Bash" else Allow(remember=True)


async def approving_later(request: PermissionRequest) -> bool:
    return request.is_pending


def answering(request: PermissionRequest) -> dict[str, str]:
    return {question.question: question.options[0].label for question in request.questions}


def going_wrong(client: Client) -> str:
    try:
        client.runs.get(1)
    except errors.GateResolvedOtherwiseError as error:
        assert_type(error.standing, Mapping[str, Any] | None)
    except signoff.SignoffError as error:
        return error.code
    return ""


def trying_out() -> None:
    fake = FakeService(read_only={"search_docs"}, tools={"add": lambda given: given["a"] + 1})
    assert_type(fake.client(), Client)
    assert_type(fake.async_client(), AsyncClient)
    assert_type(signed_webhook("run.completed").headers, dict[str, str])


def overviews(client: Client) -> None:
    assert_type(client.runs.retry(1, confirm=True), Run)
    assert_type(client.runs.archive(1), Run)
    assert_type(client.runs.unarchive(1), Run)
    assert_type(client.runs.view(1), Run)
    assert_type(client.runs.share(1), Share)
    client.runs.unshare(1)
    assert_type(client.runs.outcome(1), Outcome)
    assert_type(client.runs.check(user_id="u"), Check)
    assert_type(client.runs.needs_you(), NeedsYou)
    assert_type(client.runs.activity(), list[AgentActivity])
    assert_type(client.settings.update(per_end_user_run_limit=None), Settings)
    assert_type(client.usage.end_users(), Page[EndUserUsage])
    assert_type(client.events.each(type="run.failed"), Iterator[Event])
    client.runs.retry("1")  # type: ignore[arg-type]
    client.settings.update(retention_mode="never")  # type: ignore[arg-type]


async def overviews_async(client: AsyncClient) -> None:
    assert_type(await client.runs.outcome(1), Outcome)
    assert_type(await client.settings.get(), Settings)
    assert_type(client.audit.each(run_id=1), AsyncIterator[AuditEntry])
