"""Who may decide a gate, and how many of them have to allow it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from signoff.domain.error import InvalidFieldError

MAX_APPROVERS = 100
_PRINCIPAL = re.compile(r"key:[0-9a-f]{16}|webhook:[1-9][0-9]{0,14}|user:.{1,255}", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Decider:
    """Who makes a decision, as the request proved it; never what a body says.

    ``by`` is the record's name. ``who`` counts once for a quorum: the end user for whom an endpoint
    signs, else ``by``.
    """

    by: str
    who: str

    @classmethod
    def of_key(cls, key_id: str) -> Decider:
        """The holder of an API key."""
        return cls(by=f"key:{key_id}", who=f"key:{key_id}")

    @classmethod
    def of_endpoint(cls, endpoint_id: int, user_id: str | None) -> Decider:
        """Whoever signs with the secret of an endpoint: its user, if it has one."""
        by = f"webhook:{endpoint_id}"
        return cls(by=by, who=by if user_id is None else f"user:{user_id}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Assent:
    """One approver's allow of a gate that needs several."""

    by: str
    who: str
    at_ms: int
    digest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Approval:
    """Who may decide. None in ``any_of`` is everybody with a valid credential of the account."""

    any_of: tuple[str, ...] | None = None
    quorum: int = 1
    #: Whoever asked for the work (started the run, replied to it) may not decide.
    exclude_requester: bool = False

    @classmethod
    def read(cls, raw: Mapping[str, Any] | None) -> Approval | None:
        """What ``fields`` has written; None when nothing is restricted."""
        if raw is None:
            return None
        names = raw.get("any_of")
        return cls(
            any_of=None if names is None else tuple(names),
            quorum=raw.get("quorum") or 1,
            exclude_requester=raw.get("exclude_requester") or False,
        )

    @property
    def fields(self) -> dict[str, Any]:
        """As runs, agents and gates keep and show it."""
        return {
            "any_of": None if self.any_of is None else list(self.any_of),
            "quorum": self.quorum,
            "exclude_requester": self.exclude_requester,
        }

    def checked(self) -> Approval:
        """This; raises InvalidFieldError for what could never or would not restrict anything."""
        names = self.any_of
        if names is None:
            if self.quorum > 1:
                msg = "a quorum needs the approvers that it is counted among: any_of"
                raise InvalidFieldError(msg, field="approvers.quorum")
            if not self.exclude_requester:
                msg = "approvers restrict nothing: give any_of or exclude_requester"
                raise InvalidFieldError(msg, field="approvers")
            return self
        if not 1 <= len(names) <= MAX_APPROVERS:
            msg = f"any_of names 1 to {MAX_APPROVERS} approvers; without it everybody may decide"
            raise InvalidFieldError(msg, field="approvers.any_of")
        for n, name in enumerate(names):
            if _PRINCIPAL.fullmatch(name) is None:
                msg = "an approver is key:<key id>, webhook:<endpoint id> or user:<user id>"
                raise InvalidFieldError(msg, field=f"approvers.any_of[{n}]")
        if len(set(names)) != len(names):
            raise InvalidFieldError("an approver is named twice", field="approvers.any_of")
        if not 1 <= self.quorum <= len(names):
            msg = f"of {len(names)} approvers 1 to {len(names)} can be needed"
            raise InvalidFieldError(msg, field="approvers.quorum")
        return self

    def same_as(self, other: Approval) -> bool:
        """True when both say the same; the order of names says nothing."""
        return self._meaning == other._meaning

    @property
    def _meaning(self) -> tuple[frozenset[str] | None, int, bool]:
        names = None if self.any_of is None else frozenset(self.any_of)
        return names, self.quorum, self.exclude_requester

    def admits(self, decider: Decider) -> bool:
        """True when the decider is among the approvers."""
        return self.any_of is None or decider.by in self.any_of or decider.who in self.any_of


def checked_approval(raw: Mapping[str, Any] | None) -> Approval | None:
    """Who may decide, as asked for; raises InvalidFieldError for what makes no sense."""
    found = Approval.read(raw)
    return None if found is None else found.checked()


def settles(
    approval: Approval | None, assents: Sequence[Assent], decider: Decider, digest: str
) -> bool:
    """True when the decider's allow of ``digest`` is the last one that is needed.

    Each approver counts once, with the last input that they allowed: allows of another input are
    allows of something else.
    """
    if approval is None:
        return True
    others = {item.who for item in assents if item.digest == digest and item.who != decider.who}
    return len(others) + 1 >= approval.quorum
