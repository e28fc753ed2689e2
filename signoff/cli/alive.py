"""`signoff alive`: says by its exit code whether this host's worker or relay makes progress."""

from __future__ import annotations

import argparse
import os
import socket
import sys

from signoff.settings import Settings
from signoff.store import bootstrap


def configure(parser: argparse.ArgumentParser) -> None:
    """Add which kind of process is asked for."""
    parser.add_argument("kind", choices=["worker", "relay"])


def run(args: argparse.Namespace) -> int:
    """Return 0 when a process of that kind on this host gave a sign of life lately, else 1."""
    settings = Settings.load(os.environ)
    host = socket.gethostname()
    if bootstrap.alive(settings.redis_url, args.kind, host=host):
        return 0
    print(f"signoff: no {args.kind} of {host} gave a sign of life lately", file=sys.stderr)
    return 1
