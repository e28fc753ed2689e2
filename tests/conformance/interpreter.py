"""An interpreter that the platform's client runs on, and an environment that holds it."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

#: Newer ones may be tried with CONFORMANCE_CLIENT; this is what was seen to work.
CLIENT = "m8tes==4.49.0"
#: As the package's own metadata asks.
OLDEST = (3, 11, 9)
ROOT = Path(__file__).parents[2]
PLACE = ROOT / ".venv-conformance"

_MINORS = range(11, 20)
_VERSION = "import ensurepip, sys; print(*sys.version_info[:3])"


class NoClientError(Exception):
    """The client cannot be run on this machine; the message says why."""


def client_python() -> str:
    """The interpreter of an environment that holds the client; made once and kept.

    Raises NoClientError when no interpreter is new enough or the package cannot be had.
    """
    wanted = os.environ.get("CONFORMANCE_CLIENT") or CLIENT
    with (ROOT / ".venv-conformance.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # test processes side by side share the place
        python, stamp = PLACE / "bin" / "python", PLACE / "client"
        if stamp.exists() and stamp.read_text() == wanted and _version(str(python)):
            return str(python)
        shutil.rmtree(PLACE, ignore_errors=True)
        _do(find(), "-m", "venv", str(PLACE))
        _do(str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check", wanted)
        stamp.write_text(wanted)
    return str(python)


def find() -> str:
    """A Python that is new enough; CONFORMANCE_PYTHON, if it is set, and no other."""
    named = os.environ.get("CONFORMANCE_PYTHON")
    seen: dict[str, tuple[int, ...] | None] = {}
    for candidate in [named] if named else _candidates():
        seen[candidate] = version = _version(candidate)
        if version is not None and version >= OLDEST:
            return candidate
    known = sorted({".".join(map(str, version)) for version in seen.values() if version})
    oldest = ".".join(map(str, OLDEST))
    msg = (
        f"{CLIENT} needs Python {oldest} or newer, and none was found"
        f" (found: {', '.join(known) or 'nothing'}); set CONFORMANCE_PYTHON to one"
    )
    raise NoClientError(msg)


def _candidates() -> Iterator[str]:
    yield sys.executable
    for name in ("python3", "python", *(f"python3.{minor}" for minor in _MINORS)):
        found = shutil.which(name)
        if found:
            yield found
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    for root in (pyenv / "versions", Path.home() / ".local/share/uv/python"):
        yield from (str(path) for path in sorted(root.glob("*/bin/python3")))


def _version(python: str) -> tuple[int, ...] | None:
    """The version; None for what does not start or cannot make environments."""
    try:
        found = subprocess.run(
            [python, "-I", "-c", _VERSION], capture_output=True, text=True, timeout=20, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return tuple(int(part) for part in found.stdout.split())


def _do(*command: str) -> None:
    try:
        subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    except subprocess.CalledProcessError as error:
        shutil.rmtree(PLACE, ignore_errors=True)
        msg = f"{' '.join(command[1:])} failed: {error.stderr.strip()[-500:]}"
        raise NoClientError(msg) from error
    except (OSError, subprocess.SubprocessError) as error:
        shutil.rmtree(PLACE, ignore_errors=True)
        raise NoClientError(str(error)) from error
