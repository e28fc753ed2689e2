"""`signoff dev`: all processes and an embedded store under one supervisor."""

from __future__ import annotations

import argparse
import http.client
import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import signoff.cli
from signoff.cli import EXIT_REFUSED, port_number
from signoff.domain.error import SignoffError
from signoff.settings import Settings
from signoff.supervise.embedded import EmbeddedStore, embedded_store
from signoff.supervise.folder import DataFolder, cannot_start
from signoff.supervise.port import claim_port, reachable_url
from signoff.supervise.process import Child, Program
from signoff.supervise.supervisor import Supervisor

# Ends in this order; the sum of the longest graces stays well below the promised 15 seconds.
SERVICE_GRACE_S = 3.0
WORKER_GRACE_S = 8.0
RELAY_GRACE_S = 4.0

MIN_KEY_CHARS = 8

_PORT_WAIT_S = 3.0  # for the last service of a supervisor that was just killed
_STORE_TRIES = 3
_PROBE_S = 1.0
_HINT_PROBES = 200
# What the embedded store decides; a value for another server must not reach the children.
_OVERRULED = ("SIGNOFF_BROKER_URL", "SIGNOFF_ALLOW_VOLATILE_REDIS")


@dataclass(frozen=True, slots=True, kw_only=True)
class DevOptions:
    """What `signoff dev` was asked for; `signoff demo` fills it in by itself."""

    data: Path
    keys: tuple[str, ...]
    host: str = "127.0.0.1"
    port: int = 8000
    workers: int = 1
    fsync: str = "no"
    environ: Mapping[str, str] = field(default_factory=dict)


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (%(default)s)")
    parser.add_argument("--port", type=port_number, default=8000, help="port (%(default)s)")
    parser.add_argument("--data", type=Path, required=True, metavar="DIR", help="data folder")
    parser.add_argument(
        "--key",
        dest="keys",
        action="append",
        required=True,
        help=f"API key of {MIN_KEY_CHARS} or more characters; each is an account of its own",
    )
    parser.add_argument(
        "--fsync",
        choices=["no", "everysec", "always"],
        default="no",
        help="when the store's log reaches the disk (%(default)s: as the kernel likes)",
    )
    parser.add_argument(
        "--workers", type=int, choices=range(1, 17), default=1, metavar="N", help="1 to 16"
    )


def run(args: argparse.Namespace) -> int:
    """Run until SIGTERM or SIGINT; print `ready URL` once, when the service says it is."""
    return run_dev(
        DevOptions(
            data=args.data,
            keys=tuple(args.keys),
            host=args.host,
            port=args.port,
            workers=args.workers,
            fsync=args.fsync,
            environ=os.environ,
        )
    )


def run_dev(options: DevOptions) -> int:
    """Run everything until a signal; the same folder and keys bring the same accounts back."""
    check_keys(options.keys)
    folder = DataFolder(options.data)
    try:
        store = embedded_store(folder, search=options.environ.get("PATH"), fsync=options.fsync)
        store.clear_remains()
        port = claim_port(options.host, options.port, wait_s=_PORT_WAIT_S)
        url = reachable_url(options.host, port)
        environ = child_environment(options.environ, store=store, url=url)
        given = Settings.load(environ).secret_keys
        environ["SIGNOFF_SECRET_KEYS"] = ",".join(folder.secret_keys(given))
        Settings.load(environ)
        with Supervisor() as supervisor:
            return _supervise(supervisor, options, store, environ, url=url)
    finally:
        folder.close()


def _supervise(
    supervisor: Supervisor,
    options: DevOptions,
    store: EmbeddedStore,
    environ: Mapping[str, str],
    *,
    url: str,
) -> int:
    keeper = supervisor.start(store.program(), stage=3)
    if not supervisor.wait_until(lambda: _store_answers(store, keeper), every_s=0.02):
        return 0

    from signoff.store import bootstrap  # noqa: PLC0415 - slow to load; the store starts meanwhile

    bootstrap.ensure_dev_accounts(store.url, options.keys)
    programs = application(options, environ, port=urlsplit(url).port or 0)
    children = [supervisor.start(program, stage=stage) for stage, program in programs]
    if "SIGNOFF_TOOLS" not in environ:
        supervisor.say("no tools: set SIGNOFF_TOOLS, for example to examples.demo_tools")
    readiness = Readiness(supervisor, url, children)
    if supervisor.wait_until(readiness.reached):
        with suppress(OSError):  # nobody listens any more
            print(f"ready {url}", flush=True)
        supervisor.run()
    return 0


def _store_answers(store: EmbeddedStore, keeper: Child) -> bool:
    if keeper.exits >= _STORE_TRIES:
        raise cannot_start(f"the embedded store does not start; its folder is {store.folder}")
    return store.ping()


class Readiness:
    """Asks the service whether all is ready, and tells the operator what is missing meanwhile."""

    def __init__(self, supervisor: Supervisor, url: str, children: list[Child]) -> None:
        self._supervisor = supervisor
        self._address = urlsplit(url)
        self._children = children
        self._probes = 0

    def reached(self) -> bool:
        """Return True once /ready answers 200; raise when a child says it can never run."""
        for child in self._children:
            if child.last_code == EXIT_REFUSED:
                raise cannot_start(f"{child.program.name} refuses to start; see its last lines")
        status, text = _ask(self._address.hostname or "", self._address.port or 0)
        self._probes += 1
        if self._probes % _HINT_PROBES == 0:
            self._supervisor.say(f"not ready yet: /ready says {status or 'nothing'} {text}")
        return status == http.client.OK


def _ask(host: str, port: int) -> tuple[int, str]:
    connection = http.client.HTTPConnection(host, port, timeout=_PROBE_S)
    try:
        connection.request("GET", "/ready")
        response = connection.getresponse()
        return response.status, response.read(1000).decode(errors="replace")
    except (OSError, http.client.HTTPException):
        return 0, ""
    finally:
        connection.close()


def application(
    options: DevOptions, environ: Mapping[str, str], *, port: int
) -> list[tuple[int, Program]]:
    """Return the processes besides the store, each with the stage in which it ends."""

    def program(name: str, grace_s: float, *arguments: str) -> Program:
        return Program(name=name, argv=child_argv(*arguments), environ=environ, grace_s=grace_s)

    where = ("--host", options.host, "--port", str(port), "--grace", "2")
    names = [f"worker-{n}" for n in range(1, options.workers + 1)]
    return [
        (1, program("service", SERVICE_GRACE_S, "serve", *where)),
        *((2, program(name, WORKER_GRACE_S, "worker")) for name in names),
        (2, program("relay", RELAY_GRACE_S, "relay")),
    ]


def child_argv(*arguments: str) -> tuple[str, ...]:
    """Return the command of a child: this interpreter, and this very copy of the package.

    With -P the working directory is not searched for modules, where a `redis.py` would do harm;
    tools are looked up there by the toolbox alone.
    """
    main = Path(signoff.cli.__file__).with_name("__main__.py")
    return (sys.executable, "-P", str(main), *arguments)


def child_environment(
    given: Mapping[str, str], *, store: EmbeddedStore, url: str
) -> dict[str, str]:
    """Return the environment of all children: the given one, on the embedded store."""
    environ = {name: value for name, value in given.items() if name not in _OVERRULED}
    environ["SIGNOFF_REDIS_URL"] = store.url
    environ["SIGNOFF_DEV"] = "1"
    environ["PYTHONUNBUFFERED"] = "1"
    environ.setdefault("SIGNOFF_PUBLIC_URL", url)
    if not Settings.load(environ).has_provider:
        environ.setdefault("SIGNOFF_SCRIPTED_MODEL", "1")
    return environ


def check_keys(keys: tuple[str, ...]) -> None:
    """Raise unless every key is long enough and stands once; a key is never shown."""
    for place, key in enumerate(keys, start=1):
        if len(key) < MIN_KEY_CHARS:
            raise SignoffError(
                f"--key number {place} has fewer than {MIN_KEY_CHARS} characters",
                code="invalid_setting",
            )
    if len(set(keys)) != len(keys):
        raise SignoffError("the same --key is given twice", code="invalid_setting")
