"""A worker reads of a history what it has not seen, and keeps no more than it may."""

from __future__ import annotations

from typing import Any, cast

import pytest

from signoff.domain.message import Message, Text
from signoff.store.runs import Runs
from workers import history
from workers.history import Histories

pytestmark = pytest.mark.anyio


def message(text: str) -> Message:
    return Message(role="user", blocks=(Text(text),), turn=1, step=0)


class Stored:
    """Histories as the store has them; ``reads`` are the positions that were asked from."""

    def __init__(self) -> None:
        self.messages: dict[int, list[Message]] = {}
        self.reads: list[tuple[int, int]] = []

    async def history(self, run_id: int, start: int) -> list[Message]:
        self.reads.append((run_id, start))
        return self.messages.get(run_id, [])[start:]


@pytest.fixture
def stored() -> Stored:
    return Stored()


@pytest.fixture
def histories(stored: Stored) -> Histories:
    return Histories(cast("Runs", cast("Any", stored)))


async def test_only_what_is_new_is_read(stored: Stored, histories: Histories) -> None:
    """The cost of a step is that of what it added; what this process committed is not read."""
    stored.messages[1] = [message("a"), message("b")]
    assert [m.text for m in await histories.load(1)] == ["a", "b"]
    stored.messages[1] += [message("c"), message("d")]
    histories.add(1, stored.messages[1][2:3])
    assert [m.text for m in await histories.load(1)] == ["a", "b", "c", "d"]
    assert stored.reads == [(1, 0), (1, 3)]


async def test_nothing_is_noted_of_a_run_that_was_not_read(
    stored: Stored, histories: Histories
) -> None:
    """Without its beginning a history would be a wrong one."""
    stored.messages[1] = [message("a"), message("b")]
    histories.add(1, [message("b")])
    assert [m.text for m in await histories.load(1)] == ["a", "b"]


async def test_a_forgotten_run_is_read_from_its_beginning(
    stored: Stored, histories: Histories
) -> None:
    """Another holder may have added to it."""
    stored.messages[1] = [message("a")]
    await histories.load(1)
    histories.forget(1)
    await histories.load(1)
    assert stored.reads == [(1, 0), (1, 0)]


async def test_long_histories_and_many_runs_are_not_kept(
    stored: Stored, histories: Histories, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Memory is bounded: a long history is read each time, and the run least used goes first."""
    monkeypatch.setattr(history, "_MESSAGES", 2)
    monkeypatch.setattr(history, "_RUNS", 2)
    stored.messages = {n: [message("x")] * n for n in (1, 2, 3)}
    for run_id in (3, 3, 1, 2, 1, 4, 1, 2):
        assert len(await histories.load(run_id)) == len(stored.messages.get(run_id, []))
    assert stored.reads == [(3, 0), (3, 0), (1, 0), (2, 0), (1, 1), (4, 0), (1, 1), (2, 0)]
