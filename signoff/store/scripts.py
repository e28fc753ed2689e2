"""Loads the Lua scripts and runs them by digest; one script is one atomic move."""

from __future__ import annotations

import hashlib
from importlib import resources
from typing import Any

from pydantic_core import to_json
from redis.exceptions import ResponseError

from signoff.domain.error import LeaseLostError, MissingError, StaleError
from signoff.store.connection import Connection

Blob = str | bytes


class Args:
    """Arguments of one script: control values as JSON, strangers' text as positional blobs."""

    __slots__ = ("blobs", "control")

    def __init__(self, **control: Any) -> None:
        self.control = control
        self.blobs: list[Blob] = []

    def blob(self, value: Blob | None) -> int | None:
        """Adds a blob; the returned position goes into the control values."""
        if value is None:
            return None
        self.blobs.append(value)
        return len(self.blobs) + 1


class Scripts:
    """The scripts of ``signoff/store/lua``, by name."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._sources = _sources()
        self._digests = {
            name: hashlib.sha1(source, usedforsecurity=False).hexdigest()
            for name, source in self._sources.items()
        }

    async def load(self) -> None:
        """Puts every script into the server's cache; safe to repeat."""
        await self._connection.calls(*(("SCRIPT", "LOAD", src) for src in self._sources.values()))

    async def run(self, name: str, prefix: str, args: Args) -> Any:
        """The reply of script ``name``; a server that lost its cache gets the source again."""
        control = to_json(args.control)
        try:
            return await self._connection.call(
                "EVALSHA", self._digests[name], 1, prefix, control, *args.blobs
            )
        except ResponseError as error:
            if not str(error).startswith("NOSCRIPT"):
                raise
        return await self._connection.call(
            "EVAL", self._sources[name], 1, prefix, control, *args.blobs
        )


def _sources() -> dict[str, bytes]:
    folder = resources.files("signoff.store") / "lua"
    shared = (folder / "lib.lua").read_bytes()
    return {
        item.name.removesuffix(".lua"): shared + b"\n" + item.read_bytes()
        for item in folder.iterdir()
        if item.name.endswith(".lua") and item.name != "lib.lua"
    }


def moved(run_id: int, reply: list[Any]) -> list[Any]:
    """The reply of a move of a run; raises for one that was not made.

    MissingError: there is no such run. LeaseLostError: somebody else holds it. StaleError: what the
    move rests on is not what it was any more.
    """
    word = reply[0]
    if word == b"missing":
        raise MissingError(f"no run {run_id}")
    if word == b"lost":
        raise LeaseLostError(f"run {run_id} is held by another process")
    if word == b"stale":
        raise stale(reply)
    return reply


def stale(reply: list[Any]) -> StaleError:
    """The error of a reply ``stale``, which names what moved."""
    what = reply[1].decode()
    more = [item.decode() for item in reply[2:]]
    details: dict[str, Any] = {"what": what, "more": more} if more else {"what": what}
    return StaleError(f"{what} moved", details=details)


def pairs(flat: list[bytes]) -> dict[str, str]:
    """A flat reply of names and values as text; values must be UTF-8."""
    items = iter(flat)
    return {name.decode(): value.decode() for name, value in zip(items, items, strict=True)}
