"""The checkpoints of one LangGraph run as bytes: the commit of the engine is the checkpoint."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    WRITES_IDX_MAP,
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    DeltaChannelHistory,
    writes_sort_key,
)
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from signoff.agents import AgentFailedError

VERSION = 1
Typed = tuple[str, bytes]
# What a write is known by (task, place) and what it holds: channel, value, the task's path.
Place = tuple[str, int]
Write = tuple[str, Typed, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kept:
    """The newest checkpoint of a namespace; older ones are nobody's business."""

    id: str
    checkpoint: Typed
    metadata: Typed
    parent: str | None
    writes: dict[Place, Write] = field(default_factory=dict)


class RunSaver(BaseCheckpointSaver[int]):
    """Keeps the newest checkpoint of each graph, the last that was put, whatever its clock says.

    A run may go on in another process whose clock is behind, so ids are never compared. Only the
    types of ``allowed`` are made from bytes, besides those that LangGraph holds to be safe.
    """

    def __init__(self, saved: bytes | None, *, allowed: Collection[tuple[str, ...]]) -> None:
        """Goes on from ``saved``; AgentFailedError if that cannot be read."""
        super().__init__(serde=JsonPlusSerializer(allowed_msgpack_modules=list(allowed)))
        self._kept: dict[str, _Kept] = {}
        if saved is not None:
            try:
                self._kept = self._read(saved)
            except AgentFailedError:
                raise
            except Exception as error:
                msg = f"the graph's state cannot be read: {type(error).__name__}"
                raise AgentFailedError("agent_error", msg) from error

    def dump(self, tasks: Collection[str]) -> bytes:
        """All of it as bytes, without the subgraphs of tasks that are over."""
        rows = [
            [
                ns,
                kept.id,
                list(kept.checkpoint),
                list(kept.metadata),
                kept.parent,
                [
                    [task, place, channel, list(value), path]
                    for (task, place), (channel, value, path) in kept.writes.items()
                ],
            ]
            for ns, kept in self._kept.items()
            if _lives(ns, tasks)
        ]
        return self.serde.dumps_typed({"v": VERSION, "graphs": rows})[1]

    def _read(self, saved: bytes) -> dict[str, _Kept]:
        held = self.serde.loads_typed(("msgpack", saved))
        if held["v"] != VERSION:
            raise AgentFailedError("agent_error", f"the graph's state has version {held['v']!a}")
        return {
            ns: _Kept(
                id=checkpoint_id,
                checkpoint=_typed(checkpoint),
                metadata=_typed(metadata),
                parent=parent,
                writes={
                    (task, place): (channel, _typed(value), path)
                    for task, place, channel, value, path in writes
                },
            )
            for ns, checkpoint_id, checkpoint, metadata, parent, writes in held["graphs"]
        }

    # -- what LangGraph asks --------------------------------------------------------------------

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """The newest checkpoint of the graph; None also for an older one that is asked for."""
        ns, asked = _place(config)
        kept = self._kept.get(ns)
        if kept is None or asked not in (None, kept.id):
            return None
        thread = _thread(config)
        order = sorted(kept.writes.items(), key=lambda item: writes_sort_key(item[1][2], *item[0]))
        return CheckpointTuple(
            config=_config(thread, ns, kept.id),
            checkpoint=self.serde.loads_typed(kept.checkpoint),
            metadata=self.serde.loads_typed(kept.metadata),
            parent_config=None if kept.parent is None else _config(thread, ns, kept.parent),
            pending_writes=[
                (task, channel, self.serde.loads_typed(value))
                for (task, _), (channel, value, _) in order
            ],
        )

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Keeps ``checkpoint`` in place of the one before."""
        del new_versions
        ns, parent = _place(config)
        self._kept[ns] = _Kept(
            id=checkpoint["id"],
            checkpoint=self.serde.dumps_typed(checkpoint),
            metadata=self.serde.dumps_typed(dict(metadata)),
            parent=parent,
        )
        return _config(_thread(config), ns, checkpoint["id"])

    def put_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        """Keeps what a task of the newest checkpoint wrote; a value, once written, stands."""
        ns, checkpoint_id = _place(config)
        kept = self._kept.get(ns)
        if kept is None or kept.id != checkpoint_id:
            return
        for n, (channel, value) in enumerate(writes):
            place = (task_id, WRITES_IDX_MAP.get(channel, n))
            if place[1] < 0 or place not in kept.writes:
                kept.writes[place] = (channel, self.serde.dumps_typed(value), task_path)

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,  # noqa: A002 - LangGraph's name
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        """The newest checkpoint: there is no history."""
        del filter, limit
        found = None if config is None or before is not None else self.get_tuple(config)
        return iter([] if found is None else [found])

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """As ``get_tuple``."""
        return self.get_tuple(config)

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """As ``put``."""
        return self.put(config, checkpoint, metadata, new_versions)

    async def aput_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        """As ``put_writes``."""
        self.put_writes(config, writes, task_id, task_path)

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,  # noqa: A002 - LangGraph's name
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        """As ``list``."""
        for item in self.list(config, filter=filter, before=before, limit=limit):
            yield item

    def get_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """Refused: such channels are rebuilt from a history that is not kept."""
        del config
        if channels:
            msg = f"the graph has delta channels, which are not supported: {', '.join(channels)}"
            raise AgentFailedError("agent_error", msg)
        return {}

    async def aget_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """As ``get_delta_channel_history``."""
        return self.get_delta_channel_history(config=config, channels=channels)


def _lives(ns: str, tasks: Collection[str]) -> bool:
    """True for graphs that keep their state, and for those inside a task that is not over."""
    _, _, task = ns.partition("|")[0].partition(":")
    return not task or task in tasks


def _place(config: RunnableConfig) -> tuple[str, str | None]:
    asked = config.get("configurable", {})
    return asked.get("checkpoint_ns", ""), asked.get("checkpoint_id") or None


def _thread(config: RunnableConfig) -> str:
    return str(config.get("configurable", {}).get("thread_id", ""))


def _config(thread: str, ns: str, checkpoint_id: str) -> RunnableConfig:
    return {
        "configurable": {"thread_id": thread, "checkpoint_ns": ns, "checkpoint_id": checkpoint_id}
    }


def _typed(pair: Sequence[Any]) -> Typed:
    return pair[0], pair[1]
