"""What a process makes sure of before it works: the store is there, keeps data, and is the one."""

from __future__ import annotations

import asyncio
import logging
from urllib.parse import urlsplit

from signoff.domain.error import UnavailableError
from signoff.settings import Settings
from signoff.store.facade import open_store

logger = logging.getLogger(__name__)
WAIT_S = 60.0
_RETRY_S = 0.5
_SAY_EVERY = 10


def admit(settings: Settings, *, wait_s: float = WAIT_S) -> None:
    """Returns when this process may work on the configured store.

    Raises UnavailableError when it cannot be reached for ``wait_s``, VolatileStoreError when it
    evicts or keeps no AOF (unless that is allowed), SettingsError when it was laid out otherwise.
    """
    asyncio.run(_admit(settings, wait_s))


async def _admit(settings: Settings, wait_s: float) -> None:
    store = open_store(
        settings.redis_url, secret_keys=settings.require_secret_keys(), shards=settings.shards
    )
    place = address(settings.redis_url)
    tries = 0
    try:
        while True:
            try:
                if not settings.allow_volatile_redis:
                    await store.presence.check_durable()
                await store.layout.check()
            except UnavailableError as error:
                if tries * _RETRY_S >= wait_s:
                    msg = f"the store at {place} (SIGNOFF_REDIS_URL) cannot be reached"
                    raise UnavailableError(msg) from error
                if tries % _SAY_EVERY == 0:
                    logger.warning("store_unavailable at=%s", place)
                tries += 1
                await asyncio.sleep(_RETRY_S)
            else:
                return
    finally:
        await store.close()


def address(redis_url: str) -> str:
    """Where the URL leads, without its credentials."""
    parts = urlsplit(redis_url)
    if parts.scheme == "unix":
        return parts.path
    return f"{parts.hostname}:{parts.port or 6379}"
