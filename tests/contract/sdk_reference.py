"""Writes the reference in docs/sdk.md: ``.venv/bin/python -m tests.contract.sdk_reference``."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Iterator
from pathlib import Path

from signoff.testing import FakeService

PAGE = Path(__file__).parents[2] / "docs" / "sdk.md"
BEGIN = "<!-- The reference is written by `python -m tests.contract.sdk_reference`. -->\n"
END = "<!-- Its end. -->\n"
GROUPS = (
    *("runs", "requests", "permissions", "webhooks", "agents", "users"),
    *("settings", "usage", "events", "audit"),
)
_WIDTH = 110
_HARD = "\xa0"


def reference() -> str:
    """Every method of the sync client: its parameters with their types, its result, its text."""
    with FakeService().client() as client:
        parts = [part for name in GROUPS for part in _group(name, getattr(client, name))]
    return "\n".join(parts)


def _group(name: str, resource: object) -> Iterator[str]:
    yield f"### client.{name}\n"
    yield "```text"
    for method in sorted(item for item in dir(resource) if not item.startswith("_")):
        found = getattr(resource, method)
        if not inspect.isroutine(found):
            continue
        yield _signature(method, inspect.signature(found))
        text = (inspect.getdoc(found) or "").replace("``", "")
        for paragraph in text.split("\n\n"):
            yield textwrap.indent(textwrap.fill(" ".join(paragraph.split()), _WIDTH - 4), "    ")
    yield "```\n"


def _signature(method: str, signature: inspect.Signature) -> str:
    shown: list[str] = []
    for parameter in signature.parameters.values():
        starred = any(item == "*" for item in shown)
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY and not starred:
            shown.append("*")
        given = parameter.default
        default = "" if given in (inspect.Parameter.empty, ...) else f" = {given!r}"
        # Lines are broken between parameters only.
        shown.append(f"{parameter.name}: {parameter.annotation}{default}".replace(" ", _HARD))
    lines = textwrap.wrap(
        f"{method}({', '.join(shown)}) -> {signature.return_annotation}",
        _WIDTH,
        subsequent_indent="        ",
        break_long_words=False,
        break_on_hyphens=False,
    )
    return "\n".join(lines).replace(_HARD, " ")


def written(page: str) -> str:
    """The page with the reference of now."""
    head, _, rest = page.partition(BEGIN)
    return f"{head}{BEGIN}\n{reference()}\n{END}{rest.partition(END)[2]}"


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text()))
