"""The data folder of `signoff dev`: its lock, its generated secrets, its place for the store."""

from __future__ import annotations

import base64
import errno
import fcntl
import json
import os
import time
from collections.abc import Callable
from pathlib import Path

from signoff.domain.error import SignoffError

LOCK = "signoff.lock"
SECRETS = "secrets.json"
STORE = "store"

_LOCK_WAIT_S = 1.0
_LOCK_POLL_S = 0.02


def cannot_start(message: str) -> SignoffError:
    """Return the error for a machine that does not let us start, told to the operator."""
    return SignoffError(message, code="cannot_start")


class DataFolder:
    """One folder, held by one live supervisor; foreign files in it are left alone."""

    def __init__(self, path: Path, *, clock: Callable[[], float] = time.monotonic) -> None:
        # Not resolved: the operator's own spelling is what the messages should show.
        self.path = Path(os.path.abspath(path))  # noqa: PTH100 - Path.resolve would follow links
        self.store = self.path / STORE
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._lock = _lock(self.path / LOCK, clock)
        except OSError as error:
            raise cannot_start(f"{self.path} cannot be used as data folder: {error}") from error
        try:
            self.store.mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            self.close()
            raise cannot_start(f"{self.store} is in the way of the store: {error}") from error

    def close(self) -> None:
        """Let another supervisor have the folder; the kernel does the same when we are killed."""
        os.close(self._lock)

    def secret_keys(self, given: tuple[str, ...]) -> tuple[str, ...]:
        """Return the given Fernet keys and the folder's own, which is made when none is given."""
        path = self.path / SECRETS
        if path.exists():
            own = _read_secrets(path)
            return (*given, *(key for key in own if key not in given))
        if given:
            return given
        fresh = base64.urlsafe_b64encode(os.urandom(32)).decode()
        _write_secrets(path, [fresh])
        return (fresh,)


def _lock(path: Path, clock: Callable[[], float]) -> int:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    deadline = clock() + _LOCK_WAIT_S  # a supervisor that was just killed may still be going
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in (errno.EAGAIN, errno.EACCES):
                os.close(descriptor)
                raise
            if clock() < deadline:
                time.sleep(_LOCK_POLL_S)
                continue
            holder = os.pread(descriptor, 32, 0).decode(errors="replace").strip()
            os.close(descriptor)
            raise cannot_start(
                f"{path.parent} is in use by another signoff dev"
                + (f" (process {holder})" if holder else "")
            ) from error
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        return descriptor


def _read_secrets(path: Path) -> list[str]:
    try:
        kept = json.loads(path.read_bytes())
        keys = kept["secret_keys"]
    except (OSError, ValueError, RecursionError, KeyError, TypeError) as error:
        raise cannot_start(
            f"{path} cannot be read; without it webhook secrets in this folder are lost, so it is "
            f"not replaced: {error}"
        ) from error
    if not isinstance(keys, list) or not keys or not all(isinstance(key, str) for key in keys):
        raise cannot_start(f"{path} does not hold a list secret_keys")
    return keys


def _write_secrets(path: Path, keys: list[str]) -> None:
    """Put the file there whole or not at all, readable by the owner only."""
    draft = path.with_name(f".{path.name}.new")
    draft.unlink(missing_ok=True)  # left by a crash; the folder's lock is ours
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        json.dump({"secret_keys": keys}, file)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
