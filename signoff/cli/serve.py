"""`signoff serve`: the HTTP service in this process."""

from __future__ import annotations

import argparse
import importlib
import os
import signal
import sys
from types import FrameType

from signoff.cli import port_number
from signoff.cli.logs import configure_logging
from signoff.launch import enter_application
from signoff.settings import Settings
from signoff.supervise.port import claim_port

BACKLOG = 2048
KEEP_ALIVE_S = 75


def configure(parser: argparse.ArgumentParser) -> None:
    """Add where to listen, and how long open requests may take at the end."""
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (%(default)s)")
    parser.add_argument("--port", type=port_number, default=8000, help="port (%(default)s)")
    parser.add_argument(
        "--grace", type=int, default=10, metavar="S", help="seconds open requests get (%(default)s)"
    )


def run(args: argparse.Namespace) -> int:
    """Serve until SIGTERM; refuse to start on a store that may lose what was acknowledged."""
    # uvicorn raises the signal again when it is done; before that, it ends a slow start.
    signal.signal(signal.SIGTERM, _leave)
    settings = Settings.load(os.environ)
    settings.require_secret_keys()
    port = claim_port(args.host, args.port)

    import uvicorn  # noqa: PLC0415 - only this command needs it

    from signoff.cli.admission import admit  # noqa: PLC0415

    configure_logging()
    admit(settings)
    enter_application()
    config = uvicorn.Config(
        importlib.import_module("service.app").app,
        host=args.host,
        port=port,
        loop="uvloop",
        http=importlib.import_module("service.protocol").BoundedProtocol,
        ws="none",
        lifespan="on",
        access_log=False,
        server_header=False,
        date_header=True,
        # Nothing here depends on the client's address, so no header may claim one.
        proxy_headers=False,
        limit_concurrency=None,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=args.grace,
        backlog=BACKLOG,
    )
    server = uvicorn.Server(config)
    server.run()
    return 0 if server.started else 1


def _leave(_number: int, _frame: FrameType | None) -> None:
    sys.exit(0)
