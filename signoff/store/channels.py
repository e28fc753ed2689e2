"""Notes from the store on channels that come and go, over one connection of their own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import hiredis
from redis.exceptions import ResponseError

from signoff.store.link import Address, Link, pack

_RETRY_S = 0.5
_DIAL_S = 1.0
_NOTES = (b"message", b"subscribe")


class _Ear(Link):
    """A link that, once greeted, is told things it did not ask for."""

    def __init__(self, heard: Callable[[str], None], lost: Callable[[Link], None]) -> None:
        super().__init__(answered=lambda: None, lost=lost)
        self._heard = heard

    def data_received(self, data: bytes) -> None:
        """Bytes of replies and notes, cut anywhere."""
        if self._replies:
            super().data_received(data)
            return
        try:
            self._reader.feed(data)
            while (value := self._reader.gets()) is not False:
                if isinstance(value, list) and value[0] in _NOTES:
                    self._heard(value[1].decode())
        except hiredis.ProtocolError:
            self.abort()

    def say(self, *command: str) -> None:
        """Sends a command whose answers are notes."""
        if self._transport is not None:
            self._transport.write(pack(command))


class Channels:
    """Calls ``heard`` with a channel's name when something was said there.

    Also when listening to it has just begun, so whatever was said before is not missed. Notes
    may be lost with the connection; the caller polls as well.
    """

    def __init__(self, url: str, heard: Callable[[str], None]) -> None:
        self._address = Address(url)
        self._heard = heard
        self._wanted: set[str] = set()
        self._ear: _Ear | None = None

    def add(self, channel: str) -> None:
        """Listens to ``channel`` from now on."""
        self._wanted.add(channel)
        if self._ear is not None:
            self._ear.say("SUBSCRIBE", channel)

    def remove(self, channel: str) -> None:
        """Listens to it no more."""
        self._wanted.discard(channel)
        if self._ear is not None:
            self._ear.say("UNSUBSCRIBE", channel)

    async def listen(self) -> None:
        """Keeps the connection until cancelled."""
        while True:
            lost = asyncio.Event()
            ear = _Ear(self._heard, lambda _, over=lost: over.set())  # type: ignore[misc]
            try:
                async with asyncio.timeout(_DIAL_S):
                    await self._address.dial(lambda made=ear: made)  # type: ignore[misc]
                self._ear = ear
                if self._wanted:
                    ear.say("SUBSCRIBE", *self._wanted)
                await lost.wait()
            except (OSError, ResponseError):
                pass  # TimeoutError among them
            finally:
                self._ear = None
                ear.abort()
            await asyncio.sleep(_RETRY_S)
