"""The bytes of a graph's state: read whole or refused, and nothing foreign is made from them."""

from __future__ import annotations

from typing import Any

import ormsgpack
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from langgraph.checkpoint.base import empty_checkpoint

from signoff.agents import AgentFailedError
from tests.graph_agents import Order
from workers.agent.graph_saver import RunSaver

ROOT: Any = {"configurable": {"thread_id": "1", "checkpoint_ns": ""}}
ORDER = {(Order.__module__, Order.__qualname__)}


def put(saver: RunSaver, number: int, ns: str = "") -> Any:
    checkpoint = {**empty_checkpoint(), "id": f"id{number}"}
    checkpoint["channel_values"] = {"order": Order(number)}
    config: Any = {"configurable": {**ROOT["configurable"], "checkpoint_ns": ns}}
    return saver.put(config, checkpoint, {"step": number}, {})  # type: ignore[arg-type]


def test_the_newest_is_what_was_put_last_whatever_its_id() -> None:
    """Ids come from clocks, and the next process may have a slower one."""
    saver = RunSaver(None, allowed=ORDER)
    put(saver, 2)
    config = put(RunSaver(saver.dump(()), allowed=ORDER), 1)
    assert config["configurable"]["checkpoint_id"] == "id1"
    saver = RunSaver(saver.dump(()), allowed=ORDER)
    put(saver, 1)
    found = saver.get_tuple(ROOT)
    assert found is not None
    assert found.checkpoint["channel_values"] == {"order": Order(1)}
    assert [item.config for item in saver.list(ROOT)] == [found.config]


def test_writes_stand_and_come_back_in_order() -> None:
    """A task's value is kept once; what replaces itself, such as an interrupt, is replaced."""
    saver = RunSaver(None, allowed=ORDER)
    config = put(saver, 1)
    saver.put_writes(config, [("b", 1)], "t2", "p2")
    saver.put_writes(config, [("a", 1), ("__interrupt__", "x")], "t1", "p1")
    saver.put_writes(config, [("a", 2), ("__interrupt__", "y")], "t1", "p1")
    old: Any = {"configurable": {**config["configurable"], "checkpoint_id": "id0"}}
    saver.put_writes(old, [("c", 1)], "t3")
    found = RunSaver(saver.dump(()), allowed=ORDER).get_tuple(ROOT)
    assert found is not None
    assert found.pending_writes == [("t1", "__interrupt__", "y"), ("t1", "a", 1), ("t2", "b", 1)]


def test_subgraphs_of_tasks_that_are_over_are_left_out() -> None:
    """So that the state does not grow with each of them."""
    saver = RunSaver(None, allowed=ORDER)
    for n, ns in enumerate(["", "own", "node:t1", "node:t2", "node:t2|deep:t9"]):
        put(saver, n, ns)
    kept = RunSaver(saver.dump({"t2"}), allowed=ORDER)
    assert sorted(kept._kept) == ["", "node:t2", "node:t2|deep:t9", "own"]


def test_a_type_that_no_state_declares_is_not_made() -> None:
    """The bytes name it, and that is not enough."""
    saver = RunSaver(None, allowed=ORDER)
    put(saver, 1)
    found = RunSaver(saver.dump(()), allowed=()).get_tuple(ROOT)
    assert found is not None
    assert not isinstance(found.checkpoint["channel_values"]["order"], Order)


@given(st.binary(max_size=200))
@example(b"")
@example(ormsgpack.packb({"v": 2, "graphs": []}))
@example(ormsgpack.packb({"v": 1, "graphs": [["", 1]]}))
@example(ormsgpack.packb([]))
def test_other_bytes_are_refused(raw: bytes) -> None:
    """With the error that fails the run, and no other."""
    with pytest.raises(AgentFailedError):
        RunSaver(raw, allowed=())
