"""Calls about runs besides starting and deciding them: try again, file away, share, look."""

from __future__ import annotations

from typing import TypeVar

from signoff.client.op import Op, at, nothing, one, query
from signoff.client.overview import Activity, AgentActivity, Check, NeedsYou, Outcome, Share
from signoff.client.values import Run, Value

V = TypeVar("V", bound=Value)


def retry(run_id: int, *, confirm: bool | None = None, user_id: str | None = None) -> Op[Run]:
    """Starts the work of a failed or cancelled run again, as a new run.

    RetryNeedsConfirmationError when it had begun to act, unless ``confirm=True``.
    """
    return Op(
        method="POST",
        path=at("runs", run_id, "retry"),
        query=query(confirm=confirm, user_id=user_id),
        read=one(Run),
    )


def archive(run_id: int, *, user_id: str | None = None) -> Op[Run]:
    """Takes a run out of the lists; it stays readable by its id."""
    return _on(run_id, "archive", user_id)


def unarchive(run_id: int, *, user_id: str | None = None) -> Op[Run]:
    """Puts an archived run back into the lists."""
    return _on(run_id, "unarchive", user_id)


def view(run_id: int, *, user_id: str | None = None) -> Op[Run]:
    """Notes that a run was looked at."""
    return _on(run_id, "view", user_id)


def share(run_id: int, *, user_id: str | None = None) -> Op[Share]:
    """The public link to what is said in a run; the same one until it is revoked."""
    return Op(
        method="POST",
        path=at("runs", run_id, "share"),
        query=query(user_id=user_id),
        read=one(Share),
    )


def unshare(run_id: int, *, user_id: str | None = None) -> Op[None]:
    """Revokes the public link."""
    return Op(
        method="DELETE",
        path=at("runs", run_id, "share"),
        query=query(user_id=user_id),
        read=nothing,
    )


def outcome(run_id: int, *, user_id: str | None = None) -> Op[Outcome]:
    """What a run came to, without its history."""
    return Op(
        method="GET",
        path=at("runs", run_id, "outcome"),
        query=query(user_id=user_id),
        read=one(Outcome),
    )


def check(*, user_id: str | None = None) -> Op[Check]:
    """What changes when anything in a scope's lists does: one user's, or those without a user."""
    return _of_scope("check", user_id, Check)


def needs_you(*, user_id: str | None = None) -> Op[NeedsYou]:
    """How many runs of a scope wait for a person, and the newest of them."""
    return _of_scope("needs-you", user_id, NeedsYou)


def activity(*, user_id: str | None = None) -> Op[list[AgentActivity]]:
    """What every agent of a scope does, and the last thing that it did."""
    return Op(
        method="GET",
        path=at("runs", "activity"),
        query=query(user_id=user_id),
        read=lambda body: one(Activity)(body).data,
    )


def _on(run_id: int, what: str, user_id: str | None) -> Op[Run]:
    return Op(
        method="POST",
        path=at("runs", run_id, what),
        query=query(user_id=user_id),
        read=one(Run),
    )


def _of_scope(what: str, user_id: str | None, model: type[V]) -> Op[V]:
    return Op(method="GET", path=at("runs", what), query=query(user_id=user_id), read=one(model))
