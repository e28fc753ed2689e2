"""What handlers work with: the parts of the process, and one call of one of its surfaces."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeVar

from pydantic import BaseModel
from starlette.types import Receive, Scope

from service.auth import Keys
from service.body import check, header, read_json
from service.hub import Hub
from service.query import Query
from service.watch import Watch
from signoff.broker.hints import Hints
from signoff.domain.approval import Decider
from signoff.domain.error import InvalidFieldError, MissingError
from signoff.model_name import ModelNames
from signoff.store.accounts import Principal
from signoff.store.facade import Store
from signoff.store.timing import Entry
from signoff.tooldef import Tool
from webhooks.ending import Parts
from webhooks.expiry import expire
from webhooks.guard import Policy
from webhooks.publish import Publisher

M = TypeVar("M", bound=BaseModel)
#: How often a move is decided anew when what it was decided on has moved.
TRIES = 20
_ID = re.compile(r"[1-9][0-9]{0,14}")
_HOST = re.compile(rb"[A-Za-z0-9._-]{1,253}(:[0-9]{1,5})?|\[[0-9a-fA-F:.]{2,45}\](:[0-9]{1,5})?")


@dataclass(slots=True)
class Startup:
    """Whether the store was found to be laid out as configured; nothing is served before."""

    checked: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """The parts of one service process."""

    store: Store
    publisher: Publisher
    toolbox: Mapping[str, Tool]
    #: The names of the MCP servers that the workers know.
    mcp_servers: frozenset[str]
    models: ModelNames
    hints: Hints
    keys: Keys
    streams: Hub
    policy: Policy
    watch: Watch
    public_url: str | None
    allow_volatile: bool
    now_ms: Callable[[], int]
    new_id: Callable[[], str]
    new_secret: Callable[[], str]
    startup: Startup = field(default_factory=Startup)

    @property
    def parts(self) -> Parts:
        """What it takes to move a run that nobody holds."""
        return Parts(store=self.store, publisher=self.publisher, now_ms=self.now_ms)

    async def lapse(self, account: str, run_id: int, pause: int) -> None:
        """Settles a pause whose time is over, before anything else is done to it."""
        if await expire(self.parts, account, Entry(run_id=run_id, pause=pause, what="expire")):
            self.hint(run_id)

    def hint(self, run_id: int) -> None:
        """Wakes a worker for the run's shard."""
        self.hints.send(self.store.shards.of(run_id), run_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class Surface:
    """One of the two mounts of the same handlers."""

    prefix: str
    #: How endpoints sign that are made here and do not say.
    signature: Literal["standard", "hex"]


NATIVE = Surface(prefix="/v1", signature="standard")
COMPATIBLE = Surface(prefix="/api/v2", signature="hex")


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One authenticated request."""

    context: Context
    surface: Surface
    principal: Principal
    scope: Scope
    receive: Receive

    @property
    def account(self) -> str:
        """The caller's account."""
        return self.principal.account

    async def demand_user(self, user_id: str | None) -> None:
        """Raises InvalidFieldError for a request without a user when the account forbids those."""
        if user_id is not None:
            return
        settings = await self.context.store.account_settings.recent(self.account)
        if settings.require_end_user_id:
            raise unscoped()

    @property
    def decider(self) -> Decider:
        """The caller as the decider of a gate."""
        return Decider.of_key(self.principal.key_id)

    @property
    def by(self) -> str:
        """The caller as records name it."""
        return self.decider.by

    @property
    def query(self) -> Query:
        """The query parameters."""
        return Query(self.scope)

    def id(self, name: str) -> int:
        """The integer id of that name in the path; what cannot be an id is missing."""
        found = path_id(self.scope, name)
        if found is None:
            raise MissingError("there is nothing of this id")
        return found

    async def body(self, model: type[M]) -> M:
        """The body as ``model``."""
        return (await self.body_with_raw(model))[1]

    async def body_with_raw(self, model: type[M]) -> tuple[bytes, M]:
        """The body's bytes, and the body as ``model``."""
        raw, value = await read_json(self.scope, self.receive)
        return raw, check(model, value)

    def header(self, name: bytes) -> bytes | None:
        """A request header."""
        return header(self.scope, name)

    @property
    def origin(self) -> str:
        """Where clients reach this service: as configured, else as this client did."""
        return self.context.public_url or _origin(self.scope)


def unscoped() -> InvalidFieldError:
    """The refusal of a request without a user in an account that forbids those."""
    msg = (
        "this account requires user_id on every request: give it, or allow requests without one"
        " by PATCH /settings with require_end_user_id=False"
    )
    return InvalidFieldError(msg, code="end_user_required", field="user_id")


def path_id(scope: Scope, name: str) -> int | None:
    """The integer id of that name in the path; None for what cannot be an id."""
    text: str = scope["path_params"][name]
    return None if _ID.fullmatch(text) is None else int(text)


def _origin(scope: Scope) -> str:
    host = header(scope, b"host") or b""
    if _HOST.fullmatch(host) is None:
        # Nothing is built from a forged Host; a path is still true.
        return ""
    return f"{scope.get('scheme', 'http')}://{host.decode('ascii')}"
