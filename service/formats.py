"""The formats of an event stream: which bytes stand for a frame that the store keeps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Protocol

from service.hub import Shown
from signoff.domain.agentscope_events import Translator
from signoff.domain.frame import HIDDEN, Place, frame
from signoff.domain.jsontext import ascii_compact
from signoff.store.records import RunRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """The last event that a watcher has seen: of one frame, one or (``k`` is None) all."""

    place: Place
    n: int | None = None
    k: int | None = None

    def hides(self, place: Place, n: int, k: int) -> bool:
        """Whether event ``k`` of frame ``n`` at ``place`` was seen."""
        if place != self.place or self.n is None:
            return place <= self.place
        if n != self.n or self.k is None:
            return n <= self.n
        return k <= self.k


class Format(Protocol):
    """How one watcher is shown a stream; the frames come in order, each once."""

    #: A replay starts at the first frame also for a watcher with a mark.
    whole: bool
    #: The ends of earlier turns are shown too.
    all_ends: bool
    #: What is sent behind the last event of a turn, and when a replay is done.
    last: bytes
    replayed: bytes

    def head(self, run_id: int) -> bytes:
        """What a body begins with."""
        ...

    def show(self, shown: Shown) -> bytes:
        """What is sent for a frame; nothing for one that is not shown."""
        ...

    def fresh(self, shown: Shown) -> bool:
        """Whether the frame comes behind what the watcher has seen."""
        ...

    def restated(self, raw: bytes) -> bytes:
        """A gate that is shown once more, as the last word of a body."""
        ...

    def dropped(self, text: str, code: str) -> bytes:
        """The last word to a watcher that does not read."""
        ...


class WireFormat:
    """The frames as they are, but for those that only other formats need."""

    whole = False
    all_ends = False
    last = b"data: [DONE]\n\n"
    replayed = b"data: %s\n\n" % frame("replay_complete")

    def head(self, run_id: int) -> bytes:
        """Says which run it is."""
        return _data(frame("metadata", payload={"run_id": run_id}))

    def show(self, shown: Shown) -> bytes:
        """The frame."""
        return b"" if shown.kind in HIDDEN else shown.wire

    def fresh(self, shown: Shown) -> bool:
        """Always: what was seen is not read again."""
        del shown
        return True

    def restated(self, raw: bytes) -> bytes:
        """The frame, without an id."""
        return _data(raw)

    def dropped(self, text: str, code: str) -> bytes:
        """An error frame."""
        return _data(frame("error", error=text, error_code=code))


class AgentScopeFormat:
    """AgentScope's events, each with an id of its own to go on behind."""

    whole = True
    all_ends = True
    last = b""
    replayed = b""

    def __init__(self, run: RunRecord, mark: Mark | None) -> None:
        config = run.config
        self._mark = mark
        self._translator = Translator(
            run_id=run.id,
            name=str(config.get("name") or f"agent-{run.agent_id}"),
            model=str(config.get("model") or ""),
            turn=run.turn,
        )

    def head(self, run_id: int) -> bytes:
        """Nothing: every event names its run."""
        del run_id
        return b""

    def show(self, shown: Shown) -> bytes:
        """The events of the frame, but for those that were seen."""
        place, n, mark = shown.place, shown.n, self._mark
        return b"".join(
            b"id: %d-%d-%d.%d\ndata: %s\n\n" % (*place, n, k, ascii_compact(event).encode())
            for k, event in enumerate(self._translator.feed(place, n, shown.raw))
            if mark is None or not mark.hides(place, n, k)
        )

    def fresh(self, shown: Shown) -> bool:
        """Whether any event of the frame may be."""
        mark = self._mark
        return mark is None or not mark.hides(shown.place, shown.n, 0)

    def restated(self, raw: bytes) -> bytes:
        """Nothing: its clients follow all gates."""
        del raw
        return b""

    def dropped(self, text: str, code: str) -> bytes:
        """A custom event."""
        event = {"type": "CUSTOM", "name": code, "value": {"message": text}}
        return _data(ascii_compact(event).encode())


class MakeFormat(Protocol):
    """Makes the format for one watcher."""

    def __call__(self, run: RunRecord, mark: Mark | None, /) -> Format:
        """The format; ``mark`` is what the watcher has seen."""
        ...


def _wire(run: RunRecord, mark: Mark | None, /) -> Format:
    del run, mark
    return WireFormat()


#: By the value of ``format``.
FORMATS: Mapping[str, MakeFormat] = MappingProxyType(
    {"signoff": _wire, "agentscope": AgentScopeFormat}
)
DEFAULT = "signoff"


def _data(raw: bytes) -> bytes:
    return b"data: %s\n\n" % raw
