"""`signoff relay`: the webhook relay and the sweeper in this process."""

from __future__ import annotations

import argparse
import asyncio
import importlib
import os
import signal
from collections.abc import Callable, Coroutine
from typing import Any

import uvloop

from signoff.cli.admission import admit
from signoff.cli.logs import configure_logging
from signoff.launch import enter_application
from signoff.settings import Settings


def configure(_parser: argparse.ArgumentParser) -> None:
    """Take no options: everything is in the environment."""


def run(_args: argparse.Namespace) -> int:
    """Deliver until SIGTERM or SIGINT; what is in flight then is retried by the next relay."""
    settings = Settings.load(os.environ)
    settings.require_secret_keys()
    configure_logging()
    admit(settings)
    enter_application()
    main = importlib.import_module("webhooks.relay").main
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(until_signal(main))
    return 0


async def until_signal(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run the coroutine until it ends, or cancel it at the first SIGTERM or SIGINT."""
    task = asyncio.create_task(main())
    asked = asyncio.Event()

    def stop() -> None:
        # Once only: the group's signal is often followed by the supervisor's own, and a second
        # cancellation would cut off the cleaning up that the first one began.
        if not asked.is_set():
            asked.set()
            task.cancel()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    try:
        await task
    except asyncio.CancelledError:
        if not asked.is_set():
            raise
