"""`signoff demo`: a guided run with questions, a plan, an approval and crashes, all of it real."""

from __future__ import annotations

import argparse
import os
import secrets
import signal
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from types import FrameType

import httpx
from rich.console import Console

from signoff.cli.dev import child_argv
from signoff.demo.deployment import DemoError, Deployment
from signoff.demo.ledger import Ledger
from signoff.demo.receiver import Receiver
from signoff.demo.stage import Stage
from signoff.demo.story import Story, declined
from signoff.demo.timeline import Timeline
from signoff.supervise.process import Program

#: Where there is no terminal to ask for its width.
WIDTH = 100
#: So that a viewer does not wait out the defaults of 30 s (lease) and 5 s (second attempt).
LEASE_S = "3"
SWEEP_S = "0.5"
SCHEDULE = "0,0.5,1,2,4,8"


def configure(_parser: argparse.ArgumentParser) -> None:
    """Take no options: the demo brings all that it needs."""


def run(_args: argparse.Namespace) -> int:
    """Play the demo; 0 only when everything that was expected was seen."""
    signal.signal(signal.SIGTERM, _leave)
    console = _console()
    timeline = Timeline(console)
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="signoff-demo-") as folder:
        ledger = Ledger(Path(folder, "ledger.jsonl"))
        try:
            _play(timeline, ledger, folder=Path(folder))
        except (DemoError, httpx.HTTPError) as error:
            timeline.fail(str(error))
        timeline.show(ledger.entries())
    console.print(f"{time.monotonic() - began:.0f} s; every process of the demo has ended.")
    return 1 if timeline.failures else 0


def _play(timeline: Timeline, ledger: Ledger, *, folder: Path) -> None:
    # Hex: a text that begins with a hyphen would be read as an option.
    key = secrets.token_hex(24)
    program = Program(
        name="dev",
        argv=child_argv("dev", "--port", "0", "--data", str(folder / "store"), "--key", key),
        environ=_environment(os.environ, ledger=ledger.path),
    )
    timeline.say("Starting `signoff dev`: service, worker, relay, embedded store.")
    timeline.say(f"(Lease {LEASE_S} s instead of 30 s, second attempt after 0.5 s instead of 5 s.)")
    with Deployment(program) as deployment:
        url = deployment.ready()
        receiver = Receiver(clock=time.time, decline=declined)
        # The environment may name a proxy, which has no business between two loopback ports.
        with receiver, httpx.Client(base_url=url, trust_env=False) as api:
            stage = Stage(
                deployment=deployment,
                api=api,
                key=key,
                receiver=receiver,
                timeline=timeline,
                clock=time.time,
                token=secrets.token_bytes,
            )
            Story(stage, ledger).play()


def _environment(given: Mapping[str, str], *, ledger: Path) -> dict[str, str]:
    """The viewer's own settings and provider keys stay out: the demo is the same everywhere."""
    kept = {
        name: value
        for name, value in given.items()
        if not name.startswith("SIGNOFF_") and not name.endswith(("_API_KEY", "_BASE_URL"))
    }
    return kept | {
        "SIGNOFF_SCRIPTED_MODEL": "1",
        "SIGNOFF_TOOLS": "signoff.demo.tools",
        "SIGNOFF_DEMO_LEDGER": str(ledger),
        "SIGNOFF_LEASE_S": LEASE_S,
        "SIGNOFF_SWEEP_S": SWEEP_S,
        "SIGNOFF_WEBHOOK_SCHEDULE": SCHEDULE,
    }


def _console() -> Console:
    terminal = Console(highlight=False)
    if terminal.is_terminal:
        return terminal
    return Console(highlight=False, width=WIDTH)


def _leave(number: int, _frame: FrameType | None) -> None:
    sys.exit(128 + number)
