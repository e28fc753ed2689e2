"""Resolves absolute paths against the file system of this process, for rules about paths."""

from __future__ import annotations

import os

_STEPS = 40


def resolve_path(path: str) -> str | None:
    """Where an absolute ``path`` leads, links and ``..`` followed; what is missing stays as named.

    None when that cannot be told: a folder that may not be read, a loop, a name that is too long.
    """
    try:
        real = os.path.realpath(path, strict=False)
        # realpath hides what it could not look at; whoever was kept from looking does not know.
        for folder in _chain(path) | _chain(real):
            try:
                os.lstat(folder)
            except (FileNotFoundError, NotADirectoryError):
                continue
        # A loop of links has no end; its path exists and yet leads nowhere.
        if os.path.islink(real):  # noqa: PTH114 - as the calls around it
            return None
    except (OSError, ValueError):
        return None
    return "/" + real.lstrip("/")


def _chain(path: str) -> set[str]:
    """The path and the folders above it, as far as the bound allows."""
    found: set[str] = set()
    at = "/" + path.strip("/")
    for _ in range(_STEPS):
        if at == "/":
            break
        found.add(at)
        at = os.path.dirname(at)  # noqa: PTH120 - a pure text operation
    return found
