"""Which port the service can have, found out before anything is started."""

from __future__ import annotations

import errno
import socket
import time
from collections.abc import Callable

from signoff.supervise.folder import cannot_start

_POLL_S = 0.05


def claim_port(
    host: str, port: int, *, wait_s: float = 0.0, clock: Callable[[], float] = time.monotonic
) -> int:
    """Return the port, or a free one for 0; raise when it is taken and stays so for `wait_s`."""
    deadline = clock() + wait_s
    while True:
        try:
            return _try(host, port)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise cannot_start(f"cannot listen on {host} port {port}: {error}") from error
            if clock() >= deadline:
                raise cannot_start(f"port {port} of {host} is in use") from error
        time.sleep(_POLL_S)


def _try(host: str, port: int) -> int:
    family, kind, protocol, _, address = socket.getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    with socket.socket(family, kind, protocol) as probe:
        # As the service itself will: connections in TIME_WAIT are no obstacle, a listener is.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(address)
        return int(probe.getsockname()[1])


def reachable_url(host: str, port: int) -> str:
    """Return the URL under which this machine reaches a service that listens on the host."""
    name = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104
    return f"http://[{name}]:{port}" if ":" in name else f"http://{name}:{port}"
