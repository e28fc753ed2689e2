"""What people note on a run: archived, viewed, shared, retried. None of it moves its revision."""

from __future__ import annotations

from signoff.domain.error import MissingError
from signoff.store import keys
from signoff.store.connection import Connection
from signoff.store.keys import Shards
from signoff.store.records import RunRecord
from signoff.store.scripts import Args, Scripts, moved


class Marking:
    """Access to the notes on runs; the run of each call is one that the caller has loaded."""

    def __init__(self, connection: Connection, scripts: Scripts, shards: Shards) -> None:
        self._connection = connection
        self._scripts = scripts
        self._shards = shards

    async def archive(self, run: RunRecord, *, archived: bool) -> None:
        """Takes the run out of the lists of its scope, or puts it back; idempotent."""
        args = Args(
            id=str(run.id),
            acct=run.account,
            scope=keys.scope_key(run.user_id),
            archived=archived,
        )
        await self._run("shelve", run, args)

    async def view(self, run: RunRecord, now_ms: int) -> None:
        """Notes that the run was looked at."""
        await self._connection.call("HSET", self._key(run.id), "viewed", str(now_ms))

    async def share(self, run: RunRecord, token: str) -> str:
        """The token that opens the run: the one it has, else ``token``."""
        place = keys.share(token)
        # The way to the run first: a token that the run does not have opens nothing.
        await self._connection.call("SET", place, str(run.id))
        if await self._connection.call("HSETNX", self._key(run.id), "share", token):
            return token
        await self._connection.call("DEL", place)
        standing: bytes | None = await self._connection.call("HGET", self._key(run.id), "share")
        return await self.share(run, token) if standing is None else standing.decode()

    async def unshare(self, run: RunRecord) -> None:
        """From here on no token opens the run; idempotent."""
        standing, _ = await self._connection.calls(
            ("HGET", self._key(run.id), "share"), ("HDEL", self._key(run.id), "share")
        )
        if standing is not None:
            await self._connection.call("DEL", keys.share(standing.decode()))

    async def shared(self, token: str) -> tuple[str, int]:
        """Account and id of the run that the token opens, or MissingError."""
        run_id = await self._connection.call("GET", keys.share(token))
        if run_id is not None:
            key = self._key(int(run_id))
            account, standing = await self._connection.call("HMGET", key, "acct", "share")
            if standing == token.encode():
                return account.decode(), int(run_id)
        raise MissingError("nothing is shared by this link")

    async def claim_retry(self, run: RunRecord, child_id: int) -> None:
        """Names the run that retries this one.

        Raises StaleError when another was named since ``run`` was read, or it is not over any more.
        """
        seen = run.marks.retried_by
        args = Args(
            id=str(run.id),
            acct=run.account,
            seen="" if seen is None else str(seen),
            child=str(child_id),
        )
        await self._run("claim_retry", run, args)

    def _key(self, run_id: int) -> str:
        return keys.run(self._shards.prefix(run_id), run_id)

    async def _run(self, name: str, run: RunRecord, args: Args) -> None:
        moved(run.id, await self._scripts.run(name, self._shards.prefix(run.id), args))
