"""The `signoff` command: finds the subcommand, runs it, and turns our errors into exit codes."""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence
from typing import Protocol, cast

import signoff
from signoff.domain.error import SignoffError, UnavailableError

COMMANDS = {
    "dev": "run everything on this machine, with an embedded store",
    "demo": "the same with an example agent and its approvals",
    "serve": "run the HTTP service",
    "worker": "run one worker",
    "relay": "run the webhook relay and the sweeper",
    "alive": "tell whether this host's worker or relay makes progress",
    "keys": "create, list and revoke API keys",
}

EXIT_UNAVAILABLE = 1
EXIT_REFUSED = 2
EXIT_INTERRUPTED = 130

_SERVER_PACKAGES = frozenset(
    {"aiohttp", "celery", "cryptography", "httptools", "kombu", "redis", "rich", "starlette"}
    | {"rfc8785", "standardwebhooks", "uvicorn", "uvloop"}
)


class Command(Protocol):
    """What a module of this package offers; it is imported only when its command is run."""

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Add the options of the command."""

    def run(self, args: argparse.Namespace) -> int:
        """Do the work and return the exit code."""
        ...


def main(argv: Sequence[str] | None = None) -> int:
    """Run one subcommand; errors of our own end in one line on stderr and exit code 2."""
    given = list(sys.argv[1:] if argv is None else argv)
    name = _parser().parse_args(given[:1]).command
    try:
        command = cast("Command", importlib.import_module(f"signoff.cli.{name}"))
        parser = argparse.ArgumentParser(prog=f"signoff {name}", description=COMMANDS[name])
        command.configure(parser)
        return command.run(parser.parse_args(given[1:]))
    except UnavailableError as error:
        # Worth another try, unlike what follows: supervisors start it again.
        print(f"signoff: {error.message}", file=sys.stderr)
        return EXIT_UNAVAILABLE
    except SignoffError as error:
        print(f"signoff: {error.message}", file=sys.stderr)
        return EXIT_REFUSED
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in _SERVER_PACKAGES:
            raise
        print(
            f"signoff: {name} needs the package {error.name}: pip install 'signoff[server]'",
            file=sys.stderr,
        )
        return EXIT_REFUSED
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED


def _parser() -> argparse.ArgumentParser:
    width = max(map(len, COMMANDS))
    parser = argparse.ArgumentParser(
        prog="signoff",
        description="Durable agent runs that stop and ask.",
        epilog="commands:\n" + "\n".join(f"  {n:{width}}  {t}" for n, t in COMMANDS.items()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"signoff {signoff.__version__}")
    parser.add_argument("command", choices=COMMANDS, metavar="COMMAND")
    return parser


def port_number(text: str) -> int:
    """Return a TCP port for argparse, 0 included (the system chooses)."""
    if not (text.isascii() and text.isdigit() and int(text) < 65_536):  # noqa: PLR2004 - TCP
        raise argparse.ArgumentTypeError(f"not a port: {text!r}")
    return int(text)
