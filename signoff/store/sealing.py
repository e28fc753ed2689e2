"""Seals secrets at rest; a sealed value opens only as what it was sealed for."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import lru_cache

from cryptography.fernet import Fernet, InvalidToken, MultiFernet

from signoff.domain.error import SignoffError

_REMEMBERED = 4096


class SealError(SignoffError):
    """A stored secret does not open: wrong key, or it belongs to another object."""

    code = "sealed_value"


class Seal:
    """Fernet under the operator's keys; the first encrypts, all decrypt."""

    def __init__(self, secret_keys: Sequence[str]) -> None:
        self._fernet = MultiFernet([Fernet(key) for key in secret_keys])
        # Secrets are opened on every callback and delivery, and change on rotation only.
        self._opened = lru_cache(_REMEMBERED)(self._open)

    def close(self, secret: str, purpose: str) -> str:
        """``secret`` sealed for ``purpose`` (what it is, whose, which object)."""
        return self._fernet.encrypt(json.dumps([purpose, secret]).encode()).decode()

    def open(self, sealed: str, purpose: str) -> str:
        """The secret; raises SealError also when it was sealed for another purpose."""
        return self._opened(sealed, purpose)

    def _open(self, sealed: str, purpose: str) -> str:
        try:
            found, secret = json.loads(self._fernet.decrypt(sealed.encode()))
        except (InvalidToken, ValueError, TypeError) as error:
            raise SealError("a stored secret cannot be opened with the given keys") from error
        if found != purpose:
            raise SealError("a stored secret belongs to another object")
        return str(secret)
