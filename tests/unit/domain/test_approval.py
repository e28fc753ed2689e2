"""Who may decide, and when the last approver has allowed."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from signoff.domain.approval import Approval, Assent, Decider, settles
from signoff.domain.error import InvalidFieldError

A, B, C = (Decider.of_key(letter * 16) for letter in "abc")
BOB = Decider.of_endpoint(7, "bob")
people = st.sampled_from(
    [A, B, C, BOB, Decider.of_endpoint(8, "bob"), Decider.of_endpoint(9, None)]
)


@pytest.mark.parametrize(
    ("raw", "field"),
    [
        ({}, "approvers"),
        ({"any_of": []}, "approvers.any_of"),
        ({"any_of": [A.by, A.by]}, "approvers.any_of"),
        ({"any_of": [A.by, "bob"]}, "approvers.any_of[1]"),
        ({"any_of": ["key:xyz"]}, "approvers.any_of[0]"),
        ({"any_of": ["mode"]}, "approvers.any_of[0]"),
        ({"any_of": ["expiry"]}, "approvers.any_of[0]"),
        ({"any_of": ["webhook:0"]}, "approvers.any_of[0]"),
        ({"any_of": ["user:"]}, "approvers.any_of[0]"),
        ({"any_of": [A.by] * 101}, "approvers.any_of"),
        ({"any_of": [A.by], "quorum": 2}, "approvers.quorum"),
        ({"quorum": 2}, "approvers.quorum"),
        ({"quorum": 2, "exclude_requester": True}, "approvers.quorum"),
    ],
)
def test_what_makes_no_sense_is_refused(raw: dict[str, Any], field: str) -> None:
    """Nobody, strangers, somebody twice, more than there are, and nothing at all."""
    found = Approval.read(raw)
    assert found is not None
    with pytest.raises(InvalidFieldError) as caught:
        found.checked()
    assert caught.value.field == field


@given(
    st.lists(st.sampled_from([A.by, B.by, "webhook:7", "user:bob", "user:a\nb ü"]), unique=True),
    st.integers(1, 3),
    st.booleans(),
)
def test_what_is_kept_is_what_was_read(names: list[str], quorum: int, exclude: bool) -> None:
    """A gate keeps what its run had."""
    made = Approval(any_of=tuple(names) or None, quorum=quorum, exclude_requester=exclude)
    assert Approval.read(made.fields) == made
    assert Approval.read(None) is None


@pytest.mark.parametrize(
    ("names", "admitted"),
    [
        (None, [A, BOB]),
        ((A.by,), [A]),
        (("webhook:7",), [BOB]),
        (("user:bob",), [BOB, Decider.of_endpoint(8, "bob")]),
        (("user:7", "webhook:70"), []),
    ],
)
def test_who_is_admitted(names: tuple[str, ...] | None, admitted: list[Decider]) -> None:
    """By key, by endpoint, or by the end user that the endpoint belongs to."""
    asked = [A, BOB, Decider.of_endpoint(8, "bob")]
    approval = Approval(any_of=names)
    assert [who for who in asked if approval.admits(who)] == [
        w for w in asked if w in admitted or names is None
    ]


@given(st.lists(st.tuples(people, st.sampled_from(["d1", "d2"])), max_size=8), st.integers(1, 4))
def test_each_counts_once_with_what_they_last_allowed(
    said: list[tuple[Decider, str]], quorum: int
) -> None:
    """Walked through in order, it settles exactly when enough people allow the same thing."""
    approval = Approval(any_of=tuple("abcd"), quorum=quorum)
    stands: dict[str, Assent] = {}
    for n, (decider, digest) in enumerate(said):
        last = settles(approval, list(stands.values()), decider, digest)
        stands[decider.who] = Assent(by=decider.by, who=decider.who, at_ms=n, digest=digest)
        agree = {who for who, item in stands.items() if item.digest == digest}
        assert last == (len(agree) >= quorum)


def test_two_endpoints_of_a_user_are_one_person() -> None:
    """And without a quorum one allow is enough."""
    approval = Approval(any_of=("user:bob", A.by), quorum=2)
    first = [Assent(by=BOB.by, who=BOB.who, at_ms=1, digest="d")]
    assert not settles(approval, first, Decider.of_endpoint(8, "bob"), "d")
    assert settles(approval, first, A, "d")
    assert settles(None, [], A, "d")
