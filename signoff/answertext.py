"""The JSON value of a model's words."""

from __future__ import annotations

import re
from typing import Any

from signoff import strictjson
from signoff.domain.error import MalformedBodyError

# One fence around the whole: models put JSON into one, whatever they are told.
_FENCE = re.compile(r"```[ \t]*(?:json|JSON)?[ \t]*\r?\n(.*?)\r?\n?[ \t]*```", re.DOTALL)


def value_of(text: str) -> Any:
    """The JSON value that ``text`` is as a whole, in one code fence or none.

    Words that are none are themselves; what is not strict JSON is not guessed at.
    """
    bare = text.strip()
    fenced = _FENCE.fullmatch(bare)
    if fenced is not None:
        bare = fenced[1]
    try:
        return strictjson.loads(bare.strip().encode())
    except (MalformedBodyError, UnicodeEncodeError):
        return text
