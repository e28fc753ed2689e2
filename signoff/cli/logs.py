"""Logging of the long-lived processes: one line an event, on stderr, ids and codes only."""

from __future__ import annotations

import logging
import sys

OURS = ("signoff", "service", "workers", "webhooks")


def configure_logging() -> None:
    """Shows our own events from INFO on, and warnings of the libraries."""
    logging.basicConfig(
        level=logging.WARNING,
        stream=sys.stderr,
        format="%(asctime)s %(levelname)s %(name)s %(message)s",
    )
    for name in OURS:
        logging.getLogger(name).setLevel(logging.INFO)
