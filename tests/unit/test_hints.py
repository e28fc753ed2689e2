"""Hints are sent one at a time for each shard, and nobody waits for them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import Any, cast

import pytest
from celery import Celery

from signoff.broker.hints import Hints
from signoff.broker.options import DRAIN_TASK, QUEUE

pytestmark = pytest.mark.anyio


class Broker:
    """Takes a message when the gate is open; fails while ``error`` is set."""

    def __init__(self) -> None:
        self.sent: list[tuple[int, int | None]] = []
        self.options: dict[str, Any] = {}
        self.gate = threading.Event()
        self.error: Exception | None = None

    def send_task(self, name: str, *, args: tuple[int, int | None], **options: Any) -> None:
        assert name == DRAIN_TASK
        assert self.gate.wait(5)
        self.sent.append(args)
        self.options = options
        if self.error is not None:
            raise self.error


@pytest.fixture
def broker() -> Broker:
    return Broker()


@pytest.fixture
def hints(broker: Broker) -> Iterator[Hints]:
    made = Hints(cast("Celery", cast("Any", broker)))
    yield made
    broker.gate.set()
    made.close()


async def until(probe: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not probe():
            await asyncio.sleep(0.001)


async def test_hints_that_are_asked_for_meanwhile_are_folded_into_one(
    broker: Broker, hints: Hints
) -> None:
    """However many are asked for while one is on its way, one more follows it, for each shard."""
    hints.send(0, 7)
    for run_id in (8, 9, 10):
        hints.send(0, run_id)
    hints.send(1, 11)
    broker.gate.set()
    await until(lambda: len(broker.sent) == 3)
    assert sorted(broker.sent, key=str) == sorted([(0, 7), (0, None), (1, 11)], key=str)
    # The broker has the message a moment before its sender knows.
    await until(lambda: not hints._sending)
    hints.send(0, 12)
    await until(lambda: len(broker.sent) == 4)
    assert broker.sent[-1] == (0, 12)


async def test_a_hint_may_be_lost_and_grows_old(broker: Broker, hints: Hints) -> None:
    """It carries ids only, keeps no result, and says nothing any more after a minute."""
    broker.gate.set()
    hints.send(2, 7)
    await until(lambda: bool(broker.sent))
    assert broker.options == {"queue": QUEUE, "ignore_result": True, "expires": 60}


async def test_a_hint_that_cannot_be_sent_is_logged_and_forgotten(
    broker: Broker, hints: Hints, caplog: pytest.LogCaptureFixture
) -> None:
    """The sweeper covers it; the next one is tried like any other."""
    broker.error = ConnectionError("redis://user:secret@host is away")
    broker.gate.set()
    hints.send(0, 7)
    await until(lambda: bool(caplog.messages))
    assert caplog.messages == ["hint_lost shard=0 cause=ConnectionError"]
    broker.error = None
    await until(lambda: not hints._sending)
    hints.send(0, 8)
    await until(lambda: len(broker.sent) == 2)


async def test_nothing_is_sent_after_the_end(broker: Broker, hints: Hints) -> None:
    """A closed sender drops what it is asked for."""
    broker.gate.set()
    hints.close()
    hints.send(0, 7)
    assert broker.sent == []
    assert hints._sending == set()
