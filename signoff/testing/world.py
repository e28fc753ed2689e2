"""What the runs of the fake share."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from signoff.domain.rule import Rule

NO_USAGE = {
    "input_tokens": 0,
    "output_tokens": 0,
    "cache_read_tokens": 0,
    "cache_creation_tokens": 0,
}
#: Takes the run, the kind of its event, and what the event has besides.
Emit = Callable[[Any, str, Mapping[str, Any]], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """What runs share: their tools, the rules, the clock, and where events go."""

    tools: Mapping[str, Callable[[Mapping[str, Any]], Any]]
    read_only: Collection[str]
    external: Collection[str]
    rules: Callable[[], Sequence[Rule]]
    new_id: Callable[[str], str]
    now_ms: Callable[[], int]
    emit: Emit
    #: Told of a rule that let a call start.
    used: Callable[[Rule], None] = lambda _: None
