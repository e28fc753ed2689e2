"""The one Celery task: a hint that work may be due."""

from __future__ import annotations

from celery import Celery

from signoff.broker.options import DRAIN_TASK
from workers.runtime import Runtime


def register(app: Celery, runtime: Runtime) -> None:
    """Adds the drain task to ``app``."""

    @app.task(name=DRAIN_TASK)
    def drain(shard: int, run_id: int | None = None) -> None:  # noqa: ARG001 - for the logs
        runtime.drain(shard)
