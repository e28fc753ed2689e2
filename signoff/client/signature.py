"""What ``help`` and editors are told of the clients' methods: names, parameters, results."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any


def signature_of(make: Callable[..., Any], *, around: str = "") -> inspect.Signature:
    """The signature of the method that ``make`` is for, with its options one by one.

    An option's default is ``...``: one that is not given is not sent. The result is that of the
    call, within ``around`` if that is given (``Iterator`` of the items of a page).
    """
    plain = inspect.signature(make)
    parameters: list[inspect.Parameter] = []
    for parameter in plain.parameters.values():
        if parameter.kind is inspect.Parameter.VAR_KEYWORD:
            parameters.extend(_options(make, str(parameter.annotation)))
        else:
            parameters.append(parameter)
    result = _within(str(plain.return_annotation), ("Op[", "Steps["))
    if around:
        result = f"{around}[{_within(result, ('Page[',))}]"
    return plain.replace(parameters=parameters, return_annotation=result)


def _options(make: Callable[..., Any], annotation: str) -> list[inspect.Parameter]:
    shape = inspect.unwrap(make).__globals__[_within(annotation, ("Unpack[",))]
    return [
        inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=...,
            annotation=str(getattr(of, "__forward_arg__", of)),
        )
        for name, of in shape.__annotations__.items()
    ]


def _within(text: str, outer: tuple[str, ...]) -> str:
    for opening in outer:
        if text.startswith(opening):
            return text.removeprefix(opening).removesuffix("]")
    return text
