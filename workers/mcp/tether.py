"""Started in front of a server's command: has the kernel end it with the worker, then becomes it.

A worker that is killed cannot say goodbye, and a server that does not read its input would stay.
Run by path, without the site's packages, since it is paid for at each start.
"""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1
_NOT_FOUND = 127


def main(parent: int, server: str, command: list[str]) -> int:
    """Replaces this process; returns only when the command cannot be started."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it died before the request above could take hold
        return _NOT_FOUND
    try:
        os.execvp(command[0], command)  # noqa: S606 - the operator's own command, no shell
    except OSError as error:
        why = error.strerror
        sys.stderr.write(f"the command of the MCP server {server} cannot be started: {why}\n")
        return _NOT_FOUND


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2], sys.argv[3:]))
