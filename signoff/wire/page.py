"""The envelope of a page."""

from __future__ import annotations

from typing import Generic, TypeVar

from typing_extensions import TypedDict

T = TypeVar("T")


class PageBody(TypedDict, Generic[T]):
    """Some items of a list; ``next_starting_after`` is there exactly when there are more."""

    data: list[T]
    has_more: bool
    next_starting_after: int | str | None
