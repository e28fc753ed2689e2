"""A run's status moves only along its table."""

from __future__ import annotations

import itertools

import pytest

from signoff.domain.error import IllegalMoveError
from signoff.domain.run import FILTER_ONLY, TERMINAL, RunStatus

# Written out here and not read from the module: this is what PRODUCT promises.
ALLOWED = {
    ("running", "awaiting_approval"),
    ("running", "completed"),
    ("running", "failed"),
    ("running", "cancelled"),
    ("awaiting_approval", "running"),
    ("awaiting_approval", "failed"),
    ("awaiting_approval", "cancelled"),
    ("completed", "running"),
    ("failed", "running"),
    ("cancelled", "running"),
}


@pytest.mark.parametrize(
    ("source", "target"), [*itertools.product(RunStatus, RunStatus)], ids=lambda s: s.value
)
def test_every_pair_is_either_a_move_or_refused(source: RunStatus, target: RunStatus) -> None:
    """The full product of statuses: what the table has succeeds, all else raises."""
    if (source.value, target.value) in ALLOWED:
        assert source.to(target) is target
        return
    with pytest.raises(IllegalMoveError) as caught:
        source.to(target)
    assert (caught.value.source, caught.value.target) == (source, target)
    assert caught.value.code == "illegal_move"


@pytest.mark.parametrize("status", RunStatus, ids=lambda s: s.value)
def test_terminal_runs_only_start_again(status: RunStatus) -> None:
    """Terminal is completed, failed and cancelled; from there only a reply leads on."""
    assert status.terminal == (status.value in {"completed", "failed", "cancelled"})
    assert status.terminal == (status in TERMINAL)


def test_filter_only_statuses_are_never_stored() -> None:
    """Statuses that the wire knows beside ours are no statuses of a run."""
    assert FILTER_ONLY.isdisjoint(status.value for status in RunStatus)
