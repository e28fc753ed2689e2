"""The calls about stored rules; see ``ops`` for all others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from signoff.client.op import Op, at, nothing, one, page, query
from signoff.client.options import given, moment
from signoff.client.values import Effect, Evaluation, Mode, Page, Policy


def create_policy(
    tool: str,
    *,
    user_id: str | None = None,
    effect: Effect | None = None,
    expires_at: str | datetime | None = None,
    max_uses: int | None = None,
    approvers: Mapping[str, Any] | None = None,
) -> Op[Policy]:
    """Stores a rule, or finds the one that is stored already.

    ``tool`` is a name or a name with a pattern, such as ``Bash(git status:*)``. ``expires_at`` is
    an ISO 8601 time with its offset, or a datetime that knows its own; ``max_uses`` bounds how
    many calls an allow lets start; ``approvers`` ({any_of, quorum, exclude_requester}) may decide
    what an ask asks about. Without ``user_id`` an allow covers all runs without a user.
    """
    until = moment("expires_at", expires_at)
    return Op(
        method="POST",
        path=at("permissions"),
        body={
            "tool": tool,
            **given(
                user_id=user_id,
                effect=effect,
                expires_at=until,
                max_uses=max_uses,
                approvers=approvers,
            ),
        },
        read=one(Policy),
    )


def evaluate_policies(
    tool: str,
    input: Mapping[str, Any],  # noqa: A002 - the wire's word
    *,
    rules: Sequence[Mapping[str, Any]] | None = None,
    mode: Mode | None = None,
    user_id: str | None = None,
) -> Op[Evaluation]:
    """What would become of a call; ``rules`` stand in for the stored ones.

    Each is {tool, effect} and, if it asks, approvers.
    """
    return Op(
        method="POST",
        path=at("permissions", "evaluate"),
        body={
            "call": {"tool": tool, "input": dict(input)},
            **given(rules=rules, mode=mode, user_id=user_id),
        },
        read=one(Evaluation),
    )


def list_policies(
    *,
    user_id: str | None = None,
    limit: int | None = None,
    starting_after: int | str | None = None,
) -> Op[Page[Policy]]:
    """The rules of exactly one scope: one user's, or those without a user."""
    return Op(
        method="GET",
        path=at("permissions"),
        query=query(user_id=user_id, limit=limit, starting_after=starting_after),
        read=page(Policy),
    )


def delete_policy(policy_id: int, *, user_id: str | None = None) -> Op[None]:
    """Revokes a rule; ``user_id`` must be the rule's own."""
    return Op(
        method="DELETE",
        path=at("permissions", policy_id),
        query=query(user_id=user_id),
        read=nothing,
    )
