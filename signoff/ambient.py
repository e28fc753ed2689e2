"""What composition roots hand on: the wall clock, and ids that nobody can guess."""

from __future__ import annotations

import secrets
import time


def now_ms() -> int:
    """The wall clock in Unix milliseconds."""
    return int(time.time() * 1000)


def new_id() -> str:
    """An unguessable id of 128 bits, URL safe."""
    return secrets.token_urlsafe(16)
