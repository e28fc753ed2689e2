"""Bodies that say how the service is."""

from __future__ import annotations

from typing import Literal

from typing_extensions import TypedDict


class HealthBody(TypedDict):
    """The process is up."""

    status: Literal["ok"]


class ReadyBody(TypedDict):
    """Whether everything makes progress; ``reasons`` say what does not."""

    status: Literal["ready", "not_ready"]
    reasons: list[str]
