"""The way of a request to its handler: method, key, handler; every end is an enveloped answer."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping

from starlette.responses import Response
from starlette.routing import Match, Route
from starlette.types import Receive, Scope, Send

from service.body import DisconnectedError
from service.context import Call, Context, Surface
from service.errors import refusal
from signoff.domain.error import MissingError, SignoffError, UnavailableError

logger = logging.getLogger(__name__)

Handler = Callable[[Call], Awaitable[Response]]
#: A handler that finds out by itself who is calling.
OpenHandler = Callable[[Context, Scope, Receive], Awaitable[Response]]


class InternalError(SignoffError):
    """Something unforeseen happened; the log has the traceback."""

    code = "internal_error"


class Answering:
    """The ASGI application of one path: whatever its handler does, the client gets an answer."""

    def __init__(self, path: str, handler: OpenHandler) -> None:
        self._path = path
        self._handler = handler

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers one request."""
        context: Context = scope["app"].state.context
        route = f"{scope['method']} {self._path}"
        try:
            response = await guarded(self._handler(context, scope, receive), context, route)
        except DisconnectedError:
            return
        await response(scope, receive, send)


class Served(Route):
    """A route that knows its handlers by method, so that it can be described."""

    def __init__(
        self,
        path: str,
        application: Answering,
        handlers: Mapping[str, Callable[..., object]],
        *,
        keyed: bool,
    ) -> None:
        super().__init__(path, application, methods=list(handlers), name=path)
        self.handlers = handlers
        #: Whether it is for callers with a key only.
        self.keyed = keyed

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Whether it serves the request; a word in a path is never taken for an id."""
        match, found = super().matches(scope)
        if match is Match.PARTIAL and not self.param_convertors:
            # Ours, to be refused as a method that the path does not take.
            match = Match.FULL
        return match, found


def route(surface: Surface, path: str, handlers: Mapping[str, Handler]) -> Served:
    """The route of ``path`` under a surface: a handler per method, for callers with a key."""
    return Served(path, Answering(path, _keyed(surface, handlers)), handlers, keyed=True)


def open_route(path: str, method: str, handler: OpenHandler) -> Served:
    """The route of ``path`` for callers without a key."""
    return Served(path, Answering(path, handler), {method: handler}, keyed=False)


def _keyed(surface: Surface, handlers: Mapping[str, Handler]) -> OpenHandler:
    by_method = {**handlers}
    if "GET" in handlers:
        by_method["HEAD"] = handlers["GET"]

    async def handle(context: Context, scope: Scope, receive: Receive) -> Response:
        check_open(context, scope)
        call = Call(
            context=context,
            surface=surface,
            principal=await context.keys.principal(scope),
            scope=scope,
            receive=receive,
        )
        return await by_method[scope["method"]](call)

    return handle


def check_open(context: Context, scope: Scope) -> None:
    """Raises unless the store is known to be the right one and the path means what it says."""
    if not context.startup.checked:
        raise UnavailableError("the store was not reached yet")
    if b"%2f" in scope.get("raw_path", b"").lower():
        # Decoded, such a path would reach another route than the one that was asked for.
        raise MissingError("there is nothing here")


async def guarded(work: Awaitable[Response], context: Context, route: str) -> Response:
    """The response of ``work``, or the refusal that its exception amounts to."""
    try:
        return await work
    except DisconnectedError:
        raise
    except SignoffError as error:
        return refusal(error, request_id=f"req_{context.new_id()}", route=route)
    except Exception as error:  # noqa: BLE001 - whatever it is, the client gets an answer
        unforeseen = InternalError(str(error))
        unforeseen.__cause__ = error
        return refusal(unforeseen, request_id=f"req_{context.new_id()}", route=route)
