"""`signoff worker`: one Celery worker process that drains the ready queue."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
import warnings
from typing import Any

from signoff.cli.admission import admit
from signoff.cli.logs import configure_logging
from signoff.launch import enter_application
from signoff.settings import Settings
from signoff.tooldef import threads_made

# A hint occupies a thread only while its drain runs; the runs themselves share the loop thread.
THREADS = 4


def configure(parser: argparse.ArgumentParser) -> None:
    """Add how much Celery tells."""
    parser.add_argument(
        "--loglevel", default="WARNING", choices=["DEBUG", "INFO", "WARNING", "ERROR"]
    )


def run(args: argparse.Namespace) -> int:
    """Work until SIGTERM, then release the runs at their next commit."""
    # A bad or missing value is told here, in one line, not by a traceback from the middle of it.
    settings = Settings.load(os.environ)
    settings.require_secret_keys()
    # The warning is about pickled messages; our application accepts JSON only.
    warnings.filterwarnings("ignore", message="You're running the worker with superuser")
    configure_logging()
    admit(settings)
    enter_application()
    app: Any = importlib.import_module("workers.app").app
    app.worker_main(worker_arguments(loglevel=args.loglevel))
    if threads_made():
        # Its runs were handed back: a tool that still runs must not do so beside its successor.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)
    return 0


def worker_arguments(*, loglevel: str) -> list[str]:
    """Return Celery's arguments; queues, transport and acknowledgement are in the app's options."""
    return [
        "--quiet",
        "worker",
        "--pool=threads",
        f"--concurrency={THREADS}",
        "--without-gossip",
        "--without-mingle",
        "--without-heartbeat",
        f"--hostname=signoff-{os.getpid()}@%h",
        f"--loglevel={loglevel}",
    ]
