"""The Idempotency-Key of a request, and what it means to have seen it before."""

from __future__ import annotations

import hashlib
import re

from signoff.domain.error import ConflictError, InvalidFieldError

_KEY = re.compile(rb"[ -~]{1,255}")


def idempotency_key(raw: bytes | None) -> str | None:
    """The key of the header's value; None without one.

    Raises InvalidFieldError unless it is 1 to 255 printable ASCII characters.
    """
    if raw is None:
        return None
    if _KEY.fullmatch(raw) is None:
        msg = "Idempotency-Key must be 1 to 255 printable ASCII characters"
        raise InvalidFieldError(msg, code="invalid_idempotency_key", field="idempotency-key")
    return raw.decode("ascii")


def body_digest(raw: bytes) -> str:
    """What makes two bodies the same: their bytes."""
    return hashlib.sha256(raw).hexdigest()


def reused() -> ConflictError:
    """The refusal of a key that came with another body before."""
    msg = "this key was used with another body before"
    return ConflictError(msg, code="idempotency_key_reuse")
