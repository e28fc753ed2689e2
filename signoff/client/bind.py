"""Turns the functions of ``ops`` and ``wait`` into typed methods of the two clients."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from dataclasses import replace
from typing import Any, Generic, ParamSpec, Protocol, Self, TypeVar, overload

from signoff.client.effects import Perform, Steps
from signoff.client.op import Op
from signoff.client.signature import signature_of
from signoff.client.values import Page

P = ParamSpec("P")
T = TypeVar("T")


class Driver(Protocol):
    """Carries effects out while the caller waits."""

    def run(self, steps: Steps[T]) -> T:
        """The result of ``steps``."""
        ...


class AsyncDriver(Protocol):
    """Carries effects out on the event loop."""

    async def run(self, steps: Steps[T]) -> T:
        """The result of ``steps``."""
        ...


class Resource:
    """A group of calls of the sync client."""

    def __init__(self, driver: Driver) -> None:
        #: Carries the calls out.
        self.driver = driver


class AsyncResource:
    """A group of calls of the async client."""

    def __init__(self, driver: AsyncDriver) -> None:
        #: Carries the calls out.
        self.driver = driver


def performing(op: Op[T]) -> Steps[T]:
    """The steps of one call."""
    result: T = yield Perform(op)
    return result


def _after(op: Op[Page[T]], page: Page[T], seen: set[int | str]) -> Op[Page[T]] | None:
    """The call for the page behind ``page``; None when there is none, or it was there before."""
    cursor = page.next_starting_after
    if not page.has_more or cursor is None or cursor in seen:
        return None
    seen.add(cursor)
    return replace(op, query={**op.query, "starting_after": str(cursor)})


class Bound(Generic[P]):
    """What the kinds of methods share: bound ones show their own name, text and parameters."""

    #: What the result is within: for the sync client, and for the async one.
    around = ("", "")

    def __init__(self, make: Callable[P, Any]) -> None:
        self._make = make
        self._named = make.__name__
        self._signatures: dict[str, inspect.Signature] = {}
        self.__doc__ = make.__doc__
        self.__wrapped__ = make

    def __set_name__(self, owner: type[Any], name: str) -> None:
        self._named = name

    def _dressed(self, call: Callable[P, Any], owner: Resource | AsyncResource) -> Any:
        around = self.around[isinstance(owner, AsyncResource)]
        signature = self._signatures.get(around)
        if signature is None:
            signature = self._signatures[around] = signature_of(self._make, around=around)
        call.__doc__, call.__name__ = self.__doc__, self._named
        call.__qualname__ = f"{type(owner).__qualname__}.{self._named}"
        call.__module__ = type(owner).__module__
        call.__signature__ = signature  # type: ignore[attr-defined]
        return call


class Method(Bound[P], Generic[P, T]):
    """A call, as a method of both kinds of clients; its signature is that of ``make``."""

    _make: Callable[P, Op[T]]

    def __init__(self, make: Callable[P, Op[T]]) -> None:
        super().__init__(make)

    @overload
    def __get__(self, owner: None, kind: type[Any]) -> Self: ...
    @overload
    def __get__(self, owner: Resource, kind: type[Any]) -> Callable[P, T]: ...
    @overload
    def __get__(
        self, owner: AsyncResource, kind: type[Any]
    ) -> Callable[P, Coroutine[Any, Any, T]]: ...
    def __get__(self, owner: Resource | AsyncResource | None, kind: type[Any]) -> Any:
        """The method of one client."""
        if owner is None:
            return self
        driver, make = owner.driver, self._make

        def call(*args: P.args, **kwargs: P.kwargs) -> Any:
            return driver.run(performing(make(*args, **kwargs)))

        return self._dressed(call, owner)


class Procedure(Bound[P], Generic[P, T]):
    """Several steps, as a method of both kinds of clients."""

    _make: Callable[P, Steps[T]]

    def __init__(self, make: Callable[P, Steps[T]]) -> None:
        super().__init__(make)

    @overload
    def __get__(self, owner: None, kind: type[Any]) -> Self: ...
    @overload
    def __get__(self, owner: Resource, kind: type[Any]) -> Callable[P, T]: ...
    @overload
    def __get__(
        self, owner: AsyncResource, kind: type[Any]
    ) -> Callable[P, Coroutine[Any, Any, T]]: ...
    def __get__(self, owner: Resource | AsyncResource | None, kind: type[Any]) -> Any:
        """The method of one client."""
        if owner is None:
            return self
        driver, make = owner.driver, self._make

        def call(*args: P.args, **kwargs: P.kwargs) -> Any:
            return driver.run(make(*args, **kwargs))

        return self._dressed(call, owner)


class Each(Bound[P], Generic[P, T]):
    """A list, as a method that walks all its pages."""

    around = ("Iterator", "AsyncIterator")
    _make: Callable[P, Op[Page[T]]]

    def __init__(self, make: Callable[P, Op[Page[T]]]) -> None:
        super().__init__(make)

    @overload
    def __get__(self, owner: None, kind: type[Any]) -> Self: ...
    @overload
    def __get__(self, owner: Resource, kind: type[Any]) -> Callable[P, Iterator[T]]: ...
    @overload
    def __get__(self, owner: AsyncResource, kind: type[Any]) -> Callable[P, AsyncIterator[T]]: ...
    def __get__(self, owner: Resource | AsyncResource | None, kind: type[Any]) -> Any:
        """The method of one client."""
        if owner is None:
            return self
        walk = _walk if isinstance(owner, Resource) else _walk_async
        driver, make = owner.driver, self._make

        def call(*args: P.args, **kwargs: P.kwargs) -> Any:
            return walk(driver, make(*args, **kwargs))  # type: ignore[arg-type]

        return self._dressed(call, owner)


def _walk(driver: Driver, op: Op[Page[T]]) -> Iterator[T]:
    following: Op[Page[T]] | None = op
    seen: set[int | str] = set()
    while following is not None:
        page = driver.run(performing(following))
        yield from page.data
        following = _after(op, page, seen)


async def _walk_async(driver: AsyncDriver, op: Op[Page[T]]) -> AsyncIterator[T]:
    following: Op[Page[T]] | None = op
    seen: set[int | str] = set()
    while following is not None:
        page = await driver.run(performing(following))
        for item in page.data:
            yield item
        following = _after(op, page, seen)
