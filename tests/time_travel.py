"""Virtual time for gates: their due times move towards now, as if so much time had passed.

What is due is data in the store, so a test that waits for days moves the data; nothing in the
product knows of another clock.
"""

from __future__ import annotations

from signoff.store.facade import Store
from webhooks.ending import Parts
from webhooks.expiry import Timekeeper
from webhooks.publish import Publisher


async def pass_time(store: Store, seconds: float) -> None:
    """Ages every open gate by ``seconds``."""
    call, ms = store.connection.call, round(seconds * 1000)
    for prefix in store.shards.prefixes():
        due = await call("ZRANGE", f"{prefix}timed", 0, -1, "WITHSCORES")
        for member, score in zip(due[::2], due[1::2], strict=True):
            await call("ZADD", f"{prefix}timed", float(score) - ms, member)
        inboxes = [
            key.decode()
            for key in await call("KEYS", f"{prefix}open:*")
            if await call("TYPE", key) == b"zset"
        ]
        for inbox in inboxes:
            opened = await call("ZRANGE", inbox, 0, -1, "WITHSCORES")
            for member, score in zip(opened[::2], opened[1::2], strict=True):
                await call("ZADD", inbox, float(score) - ms, member)
                gate = f"{prefix}gate:{member.decode().partition(':')[2]}"
                for name in ("created", "remind_at", "expires_at"):
                    if await call("HEXISTS", gate, name):
                        await call("HINCRBY", gate, name, -ms)


async def do_due(store: Store, publisher: Publisher, *, shard: int = 0) -> list[int]:
    """Does all that is due in a shard; returns the runs for which a worker was hinted."""
    hinted: list[int] = []
    parts = Parts(store=store, publisher=publisher, now_ms=lambda: 1)
    keeper = Timekeeper(shard, parts=parts, hint=lambda _shard, run_id: hinted.append(run_id))
    while await keeper.round() <= 0:
        pass
    return hinted
