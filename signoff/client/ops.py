"""Every call of the API: its arguments, its request, and the reading of its answer.

The sync and the async client both take their methods from here, so they cannot differ.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Unpack

from signoff.client.op import Op, at, many, nothing, one, page, query
from signoff.client.options import (
    AgentOptions,
    CreateOptions,
    ReplyOptions,
    UserOptions,
    given,
    known,
)
from signoff.client.values import (
    Agent,
    Answered,
    AnswerMap,
    Decided,
    Delivery,
    Message,
    Mode,
    Page,
    PermissionRequest,
    Run,
    SentTest,
    User,
    Webhook,
)

# Runs


def create_run(message: str, **options: Unpack[CreateOptions]) -> Op[Run]:
    """Starts a run; it answers at once and the run works in the background."""
    body = given(**known(options, CreateOptions))
    key = body.pop("idempotency_key", None)
    return Op(
        method="POST",
        path=at("runs"),
        body={"message": message, "stream": False, **body},
        keyed=True,
        idempotency_key=key,
        read=one(Run),
    )


def get_run(
    run_id: int, *, user_id: str | None = None, wait_s: int | None = None, known: str | None = None
) -> Op[Run]:
    """One run; with ``wait_s`` as soon as it is not as ``known`` (a version or status) any more."""
    return Op(
        method="GET",
        path=at("runs", run_id),
        query=query(user_id=user_id, wait_s=wait_s, known=known),
        patience_s=wait_s or 0,
        read=one(Run),
    )


def list_runs(
    *,
    user_id: str | None = None,
    include_end_user_runs: bool | None = None,
    agent_id: int | None = None,
    status: str | None = None,
    sort: Literal["created", "priority"] | None = None,
    limit: int | None = None,
    starting_after: int | str | None = None,
) -> Op[Page[Run]]:
    """Runs, newest first: of one user, of none, or of all."""
    return Op(
        method="GET",
        path=at("runs"),
        query=query(
            user_id=user_id,
            include_end_user_runs=include_end_user_runs,
            agent_id=agent_id,
            status=status,
            sort=sort,
            limit=limit,
            starting_after=starting_after,
        ),
        read=page(Run),
    )


def messages(
    run_id: int,
    *,
    after_sequence: int | None = None,
    before_sequence: int | None = None,
    tail: bool | None = None,
    limit: int | None = None,
) -> Op[list[Message]]:
    """The history of a run, oldest first."""
    return Op(
        method="GET",
        path=at("runs", run_id, "messages"),
        query=query(
            after_sequence=after_sequence,
            before_sequence=before_sequence,
            tail=tail,
            limit=limit,
        ),
        read=many(Message),
    )


def cancel(run_id: int, *, user_id: str | None = None) -> Op[Run]:
    """Ends a run; RunNotActiveError when it has ended already."""
    return Op(
        method="POST",
        path=at("runs", run_id, "cancel"),
        query=query(user_id=user_id),
        read=one(Run),
    )


def reply(run_id: int, message: str, **options: Unpack[ReplyOptions]) -> Op[Run]:
    """Says something more: a new turn of the same run, or queued while one is under way."""
    body = given(**known(options, ReplyOptions))
    key = body.pop("idempotency_key", None)
    return Op(
        method="POST",
        path=at("runs", run_id, "reply"),
        body={"message": message, "stream": False, **body},
        keyed=True,
        idempotency_key=key,
        read=one(Run),
    )


def update_permission_mode(run_id: int, mode: Mode) -> Op[Mode]:
    """Switches the mode; ``autonomous`` also allows the pending tool approvals."""
    return Op(
        method="PATCH",
        path=at("runs", run_id, "permission-mode"),
        body={"permission_mode": mode},
        read=lambda _: mode,
    )


# Gates and decisions


def permissions(run_id: int) -> Op[list[PermissionRequest]]:
    """All gates of a run, oldest first; those that wait are ``is_pending``."""
    return Op(method="GET", path=at("runs", run_id, "permissions"), read=many(PermissionRequest))


def approve(
    run_id: int,
    request_id: str,
    decision: Literal["allow", "deny"] = "allow",
    *,
    reason: str | None = None,
    remember: bool | None = None,
    input: Mapping[str, Any] | None = None,  # noqa: A002 - the wire's word
    rules: Sequence[Mapping[str, Any]] | None = None,
    expected_digest: str | None = None,
) -> Op[PermissionRequest]:
    """Allows or denies one gate; the same decision again has no second effect."""
    return Op(
        method="POST",
        path=at("runs", run_id, "approve"),
        body={
            "request_id": request_id,
            "decision": decision,
            **given(
                reason=reason,
                remember=remember,
                input=input,
                rules=rules,
                expected_digest=expected_digest,
            ),
        },
        read=one(PermissionRequest),
    )


def answer(run_id: int, answers: AnswerMap, *, request_id: str | None = None) -> Op[Answered]:
    """Answers a question or a plan, by question text; the oldest open one if none is named."""
    return Op(
        method="POST",
        path=at("runs", run_id, "answer"),
        body={"answers": answers, **given(request_id=request_id)},
        read=one(Answered),
    )


def decide(run_id: int, decisions: Sequence[Mapping[str, Any]]) -> Op[Decided]:
    """Decides several gates of a run, all or none."""
    return Op(
        method="POST",
        path=at("runs", run_id, "decisions"),
        body={"decisions": list(decisions)},
        read=one(Decided),
    )


def send_event(run_id: int, event: Mapping[str, Any]) -> Op[Decided]:
    """Answers calls by an event of AgentScope: USER_CONFIRM_RESULT or EXTERNAL_EXECUTION_RESULT."""
    return Op(method="POST", path=at("runs", run_id, "events"), body=dict(event), read=one(Decided))


def submit_results(run_id: int, results: Sequence[Mapping[str, Any]]) -> Op[Decided]:
    """Supplies results of external calls of a run, all or none; the same again changes nothing.

    Each has ``output`` and either ``request_id`` or ``tool_use_id``; ``state`` is "success", or
    "error" for a call that failed outside.
    """
    return Op(
        method="POST",
        path=at("runs", run_id, "results"),
        body={"results": list(results)},
        read=one(Decided),
    )


def list_requests(
    *,
    user_id: str | None = None,
    agent_id: int | None = None,
    tool: str | None = None,
    min_age: int | None = None,
    limit: int | None = None,
    starting_after: int | str | None = None,
) -> Op[Page[PermissionRequest]]:
    """Open gates of all runs, oldest first: the inbox; ``min_age`` is in seconds."""
    return Op(
        method="GET",
        path=at("requests"),
        query=query(
            user_id=user_id,
            agent_id=agent_id,
            tool=tool,
            min_age=min_age,
            limit=limit,
            starting_after=starting_after,
        ),
        read=page(PermissionRequest),
    )


# Webhook endpoints


def create_webhook(
    url: str,
    *,
    events: Sequence[str] | None = None,
    user_id: str | None = None,
    signature: Literal["standard", "hex"] | None = None,
) -> Op[Webhook]:
    """Makes an endpoint; keep ``secret``, it is shown this once."""
    return Op(
        method="POST",
        path=at("webhooks"),
        body={"url": url, **given(events=events, user_id=user_id, signature=signature)},
        read=one(Webhook),
    )


def get_webhook(webhook_id: int) -> Op[Webhook]:
    """One endpoint, with its secret masked."""
    return Op(method="GET", path=at("webhooks", webhook_id), read=one(Webhook))


def list_webhooks(
    *,
    user_id: str | None = None,
    limit: int | None = None,
    starting_after: int | str | None = None,
) -> Op[Page[Webhook]]:
    """The endpoints of exactly one scope, newest first."""
    return Op(
        method="GET",
        path=at("webhooks"),
        query=query(user_id=user_id, limit=limit, starting_after=starting_after),
        read=page(Webhook),
    )


def update_webhook(
    webhook_id: int,
    *,
    url: str | None = None,
    events: Sequence[str] | None = None,
    active: bool | None = None,
    rotate_secret: bool | None = None,
    overlap_seconds: int | None = None,
) -> Op[Webhook]:
    """Changes an endpoint; a rotation shows the new secret, this once."""
    changes = given(
        url=url,
        events=events,
        active=active,
        rotate_secret=rotate_secret,
        overlap_seconds=overlap_seconds,
    )
    return Op(method="PATCH", path=at("webhooks", webhook_id), body=changes, read=one(Webhook))


def delete_webhook(webhook_id: int) -> Op[None]:
    """Removes an endpoint."""
    return Op(method="DELETE", path=at("webhooks", webhook_id), read=nothing)


def send_test(webhook_id: int) -> Op[SentTest]:
    """Sends ``webhook.test`` to an endpoint; how it went is among its deliveries."""
    return Op(method="POST", path=at("webhooks", webhook_id, "test"), read=one(SentTest))


def list_deliveries(
    webhook_id: int, *, limit: int | None = None, starting_after: int | str | None = None
) -> Op[Page[Delivery]]:
    """What went, or is to go, to an endpoint, newest first."""
    return Op(
        method="GET",
        path=at("webhooks", webhook_id, "deliveries"),
        query=query(limit=limit, starting_after=starting_after),
        read=page(Delivery),
    )


def get_delivery(webhook_id: int, delivery_id: int) -> Op[Delivery]:
    """One delivery with the log of its attempts."""
    return Op(
        method="GET",
        path=at("webhooks", webhook_id, "deliveries", delivery_id),
        read=one(Delivery),
    )


# Agents


def create_agent(
    name: str, *, user_id: str | None = None, **options: Unpack[AgentOptions]
) -> Op[Agent]:
    """Makes an agent."""
    body = given(user_id=user_id, **known(options, AgentOptions))
    return Op(method="POST", path=at("agents"), body={"name": name, **body}, read=one(Agent))


def get_agent(agent_id: int, *, user_id: str | None = None) -> Op[Agent]:
    """One agent, archived or not."""
    return Op(
        method="GET", path=at("agents", agent_id), query=query(user_id=user_id), read=one(Agent)
    )


def list_agents(
    *,
    user_id: str | None = None,
    include_archived: bool | None = None,
    limit: int | None = None,
    starting_after: int | str | None = None,
) -> Op[Page[Agent]]:
    """Agents: of one user, or of everybody."""
    return Op(
        method="GET",
        path=at("agents"),
        query=query(
            user_id=user_id,
            include_archived=include_archived,
            limit=limit,
            starting_after=starting_after,
        ),
        read=page(Agent),
    )


def update_agent(
    agent_id: int, *, name: str | None = None, **options: Unpack[AgentOptions]
) -> Op[Agent]:
    """Changes what is given; None clears what can be empty."""
    body = {**given(name=name), **known(options, AgentOptions)}
    return Op(method="PATCH", path=at("agents", agent_id), body=body, read=one(Agent))


def archive_agent(agent_id: int) -> Op[None]:
    """Archives an agent; it keeps its runs and can be brought back."""
    return Op(method="DELETE", path=at("agents", agent_id), read=nothing)


def unarchive_agent(agent_id: int) -> Op[Agent]:
    """Brings an archived agent back."""
    return Op(method="POST", path=at("agents", agent_id, "unarchive"), read=one(Agent))


def enable_agent(agent_id: int) -> Op[Agent]:
    """Lets an agent take runs again."""
    return Op(method="POST", path=at("agents", agent_id, "enable"), read=one(Agent))


def disable_agent(agent_id: int) -> Op[Agent]:
    """Stops an agent from taking runs."""
    return Op(method="POST", path=at("agents", agent_id, "disable"), read=one(Agent))


# End users


def create_user(user_id: str, **options: Unpack[UserOptions]) -> Op[User]:
    """Makes the profile of an end user."""
    body = given(**known(options, UserOptions))
    return Op(method="POST", path=at("users"), body={"user_id": user_id, **body}, read=one(User))


def get_user(user_id: str) -> Op[User]:
    """One end user."""
    return Op(method="GET", path=at("users", user_id), read=one(User))


def list_users(
    *, limit: int | None = None, starting_after: int | str | None = None
) -> Op[Page[User]]:
    """End users of the account."""
    return Op(
        method="GET",
        path=at("users"),
        query=query(limit=limit, starting_after=starting_after),
        read=page(User),
    )


def update_user(user_id: str, **options: Unpack[UserOptions]) -> Op[User]:
    """Changes what is given; None clears a limit, ``metadata`` is replaced as a whole."""
    return Op(
        method="PATCH",
        path=at("users", user_id),
        body=known(options, UserOptions),
        read=one(User),
    )


def delete_user(user_id: str) -> Op[None]:
    """Removes the profile; what the user's runs left stays."""
    return Op(method="DELETE", path=at("users", user_id), read=nothing)
