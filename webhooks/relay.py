"""Claims due deliveries, sends them, settles what came of it; any number may run at once."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import secrets
import socket
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from signoff.ambient import new_id, now_ms
from signoff.broker.hints import Hints
from signoff.broker.options import make_celery
from signoff.domain import event as events
from signoff.domain.delivery import DISABLE_AFTER_S, after_failure
from signoff.domain.error import MissingError, SignoffError, UnavailableError
from signoff.settings import Settings
from signoff.store import keys
from signoff.store.endpoints import Endpoint, EndpointChange
from signoff.store.facade import Store, open_store
from signoff.store.listener import Listener
from signoff.store.outbox import DueDelivery, Settled
from signoff.store.presence import BEAT_S
from signoff.store.sealing import SealError
from webhooks.ending import Parts
from webhooks.expiry import Timekeeper
from webhooks.guard import Policy
from webhooks.publish import Publisher
from webhooks.sender import Attempt, Sender, Signing
from webhooks.sweeper import sweep_for_ever

logger = logging.getLogger(__name__)
SLOTS = 512
#: In flight at once to one endpoint, so that a slow one holds nobody else up.
PER_ENDPOINT = 16
LEASE_MS = 6000
EXTEND_S = 2.0
#: Wake-ups can be lost; the next due time is slept towards, but never longer than this.
POLL_S = 2.0
_RETRY_S = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """How long deliveries are tried, with the randomness of the jitter (-1…1)."""

    schedule: Sequence[float]
    jitter: Callable[[], float]
    disable_after_s: float = DISABLE_AFTER_S


class Relay:
    """Delivers one shard's outbox."""

    def __init__(
        self,
        shard: int,
        *,
        store: Store,
        sender: Sender,
        publisher: Publisher,
        terms: Terms,
        now_ms: Callable[[], int],
        token: str,
    ) -> None:
        self._shard = shard
        self._store = store
        self._sender = sender
        self._publisher = publisher
        self._terms = terms
        self._now_ms = now_ms
        self._token = token
        self._flying: dict[int, asyncio.Task[None]] = {}
        self._busy: Counter[str] = Counter()
        self._done: list[Settled] = []
        self._endpoints: dict[int, Endpoint] = {}
        self._due = asyncio.Event()
        self._settle_now = asyncio.Event()

    def wake(self) -> None:
        """Something is due."""
        self._due.set()

    async def run(self) -> None:
        """Delivers until it is cancelled; what was answered by then is still settled."""
        helpers = [asyncio.create_task(self._settle()), asyncio.create_task(self._extend())]
        try:
            while True:
                for task in helpers:
                    if task.done():
                        # Without it nothing would be settled: better to end and be started anew.
                        task.result()
                try:
                    await self._round()
                except UnavailableError:
                    logger.warning("claim_failed shard=%d", self._shard)
                    await asyncio.sleep(_RETRY_S)
        finally:
            for task in [*self._flying.values(), *helpers]:
                task.cancel()
            await asyncio.gather(*self._flying.values(), *helpers, return_exceptions=True)
            if self._done:
                await self._settle_batch()

    async def _round(self) -> None:
        self._due.clear()
        room = SLOTS - len(self._flying)
        wait_s = POLL_S
        if room > 0:
            claim = await self._store.outbox.claim(
                self._shard,
                token=self._token,
                limit=room,
                cap=PER_ENDPOINT,
                lease_ms=LEASE_MS,
                busy=self._busy,
                first_ms=round(self._terms.schedule[0] * 1000),
            )
            if claim.rows:
                await self._launch(claim.rows)
            if claim.next_ms is not None:
                wait_s = min(max(claim.next_ms / 1000, 0.0), POLL_S)
            if claim.rows and wait_s == 0.0:
                return
        if wait_s > 0 or room <= 0:
            try:
                await asyncio.wait_for(self._due.wait(), max(wait_s, 0.005))
            except TimeoutError:
                return

    async def _launch(self, rows: Sequence[DueDelivery]) -> None:
        ids = list({row.endpoint_id for row in rows})
        found = await self._find(ids)
        for row in rows:
            task = asyncio.create_task(self._deliver(row, found[row.endpoint_id]))
            self._flying[row.id] = task
            self._busy[row.account] += 1

    async def _find(self, ids: Sequence[int]) -> dict[int, Endpoint | SealError | None]:
        endpoints = self._store.endpoints
        try:
            return dict(zip(ids, await endpoints.find_all(ids), strict=True))
        except SealError:
            pass
        # One by one: whose secret does not open waits, the others do not wait for it.
        found: dict[int, Endpoint | SealError | None] = {}
        for endpoint_id in ids:
            try:
                found[endpoint_id] = await endpoints.find(endpoint_id)
            except SealError as error:
                logger.error("endpoint_sealed endpoint=%d", endpoint_id)  # noqa: TRY400 - the operator needs no traceback
                found[endpoint_id] = error
        return found

    async def _deliver(self, row: DueDelivery, endpoint: Endpoint | SealError | None) -> None:
        try:
            if isinstance(endpoint, SealError):
                # Never unsigned; it is tried again like any other failure.
                self._done.append(self._outcome(row, Attempt(outcome="failed", error="signing")))
            elif endpoint is None or not endpoint.active:
                reason = "endpoint_deleted" if endpoint is None else "endpoint_disabled"
                self._done.append(_cancelled(row, reason, self._now_ms()))
            else:
                signing = _signing(endpoint, self._now_ms())
                attempt = await self._sender.send(
                    url=endpoint.url, msg_id=row.event_id, body=row.body, signing=signing
                )
                if attempt.outcome == "failed":
                    self._endpoints[row.id] = endpoint
                self._done.append(self._outcome(row, attempt))
        finally:
            self._flying.pop(row.id, None)
            self._busy[row.account] -= 1
            if self._busy[row.account] <= 0:
                del self._busy[row.account]
            self._settle_now.set()

    def _outcome(self, row: DueDelivery, attempt: Attempt) -> Settled:
        log = {
            "at": self._now_ms(),
            "attempt": row.attempt,
            "outcome": attempt.outcome,
            "status": attempt.status,
            "error": attempt.error,
            "duration_ms": attempt.duration_ms,
        }
        if attempt.outcome == "delivered":
            return Settled(
                id=row.id,
                attempt=row.attempt,
                outcome="success",
                status=attempt.status,
                error=None,
                body=attempt.body,
                log=log,
            )
        backoff = after_failure(
            row.attempt,
            schedule=self._terms.schedule,
            jitter=self._terms.jitter(),
            retry_after_s=attempt.retry_after_s,
        )
        last = backoff.delay_s is None or attempt.gone
        error = "gone" if attempt.gone else attempt.error
        logger.info(
            "attempt_failed delivery=%d endpoint=%d attempt=%d error=%s status=%s",
            row.id,
            row.endpoint_id,
            row.attempt,
            error,
            attempt.status,
        )
        return Settled(
            id=row.id,
            attempt=row.attempt,
            outcome="failed" if last else "retry",
            status=attempt.status,
            error=error,
            body=attempt.body,
            log=log,
            delay_ms=None if last else round((backoff.delay_s or 0) * 1000),
            hold_ms=None if backoff.hold_s is None else round(backoff.hold_s * 1000),
        )

    async def _settle(self) -> None:
        while True:
            await self._settle_now.wait()
            self._settle_now.clear()
            while self._done:
                try:
                    await self._settle_batch()
                except UnavailableError:
                    logger.warning("settle_failed shard=%d", self._shard)
                    await asyncio.sleep(_RETRY_S)
            # A slot or a place at an endpoint is free, or a retry has its time: claim again.
            self._due.set()

    async def _settle_batch(self) -> None:
        batch = self._done[:64]
        failing = await self._store.outbox.settle(self._shard, token=self._token, items=batch)
        del self._done[: len(batch)]
        for item in batch:
            endpoint = self._endpoints.pop(item.id, None)
            since = failing.get(item.id)
            if endpoint is None or since is None:
                continue
            if item.error == "gone":
                await self._disable(endpoint, "gone")
            elif since >= self._terms.disable_after_s * 1000:
                await self._disable(endpoint, "only_failures")

    async def _disable(self, endpoint: Endpoint, reason: str) -> None:
        try:
            found = await self._store.endpoints.get(endpoint.account, endpoint.id)
            if not found.active:
                return
            change = EndpointChange(active=False, disabled_reason=reason)
            await self._store.endpoints.change(found, change, now_ms=self._now_ms())
        except MissingError:
            return
        logger.warning("endpoint_disabled endpoint=%d reason=%s", endpoint.id, reason)
        event = self._publisher.event(
            events.ENDPOINT_DISABLED,
            {"webhook_id": endpoint.id, "user_id": endpoint.user_id, "reason": reason},
        )
        subscriptions = await self._store.catalog.subscriptions(endpoint.account, self._shard + 1)
        fanout = subscriptions.fanout(events.ENDPOINT_DISABLED, endpoint.user_id)
        await self._store.outbox.emit(self._shard, endpoint.account, event, fanout)

    async def _extend(self) -> None:
        while True:
            await asyncio.sleep(EXTEND_S)
            ids = list(self._flying)
            if ids:
                try:
                    await self._store.outbox.extend(
                        self._shard, token=self._token, ids=ids, lease_ms=LEASE_MS
                    )
                except UnavailableError:
                    logger.warning("extend_failed shard=%d", self._shard)


def _signing(endpoint: Endpoint, now_ms: int) -> Signing:
    return Signing(
        kind="hex" if endpoint.signature == "hex" else "standard",
        secrets=endpoint.live_secrets(now_ms),
    )


def _cancelled(row: DueDelivery, reason: str, at: int) -> Settled:
    return Settled(
        id=row.id,
        attempt=row.attempt,
        outcome="cancelled",
        status=None,
        error=reason,
        body="",
        log={"at": at, "attempt": row.attempt, "outcome": "cancelled", "error": reason},
    )


async def main() -> None:
    """The relay process: all shards' outboxes and due times, and the sweeper; until cancelled."""
    settings = Settings.load(os.environ)
    store = open_store(
        settings.redis_url, secret_keys=settings.require_secret_keys(), shards=settings.shards
    )
    name = f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"
    hints = Hints(make_celery(settings.broker_url))
    publisher = Publisher(store.catalog, now_ms=now_ms, token=new_id)
    policy = Policy.load(settings.webhook_allow, dev=settings.dev)
    async with Sender(policy, clock=time.time) as sender:
        terms = Terms(schedule=settings.webhook_schedule, jitter=lambda: random.uniform(-1, 1))  # noqa: S311 - spreads retries, guards nothing
        relays = {
            keys.channel(keys.shard_prefix(n), "due"): Relay(
                n,
                store=store,
                sender=sender,
                publisher=publisher,
                terms=terms,
                now_ms=now_ms,
                token=secrets.token_hex(8),
            )
            for n in range(settings.shards)
        }
        parts = Parts(store=store, publisher=publisher, now_ms=now_ms)
        keepers = {
            keys.channel(keys.shard_prefix(n), "timed"): Timekeeper(n, parts=parts, hint=hints.send)
            for n in range(settings.shards)
        }
        wakes = {name: relay.wake for name, relay in relays.items()}
        wakes.update((name, keeper.wake) for name, keeper in keepers.items())
        listener = Listener(settings.redis_url, list(wakes))
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(listener.listen(lambda channel, _: wakes[channel]()))
                group.create_task(sweep_for_ever(store, hints.send, every_s=settings.sweep_s))
                group.create_task(_beat(store, name))
                for relay in relays.values():
                    group.create_task(relay.run())
                for keeper in keepers.values():
                    group.create_task(keeper.run())
        finally:
            hints.close()
            try:
                await store.presence.leave("relay", name)
            except SignoffError:
                logger.warning("leave_failed")
            await store.close()


async def _beat(store: Store, name: str) -> None:
    while True:
        try:
            await store.presence.beat("relay", name)
        except UnavailableError:
            logger.warning("beat_failed")
        await asyncio.sleep(BEAT_S)
