"""The rules that a reviewer may accept with an approval: never broader than what is shown."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Sequence

from signoff.domain.pattern import pattern_of
from signoff.domain.rule import Verdict
from signoff.domain.shellcode import carries, interpreter, launches
from signoff.domain.subject import Subject

#: A prefix of them says nothing about what the command is for.
_QUIET = frozenset({"echo", "cat", "ls", "pwd", "cd", "true", "false", "printf", "grep"})
#: What they run by name is a script of the project: the first two words say so.
_SCRIPTS = frozenset({"npm", "pnpm", "yarn", "bun"})
_WORD = re.compile(r"[A-Za-z0-9_./@%+,=-]+")
_FOLDER = re.compile(r"[A-Za-z0-9_./@%+,= -]+")


def suggested_rules(call: Subject) -> list[dict[str, str]]:
    """At most one allow rule, and one that covers the call as it is shown.

    Of a shell command the first two words as a prefix (three behind ``uv run`` and its like), of a
    path its folder, otherwise the tool.
    """
    text = _suggested(call)
    pattern = None if text is None else pattern_of(text)
    if text is None or pattern is None or not call.allowed_by(pattern):
        return []
    return [{"tool": text, "effect": Verdict.ALLOW.value}]


def _suggested(call: Subject) -> str | None:
    if call.kind == "shell":
        return _prefix(call)
    if call.kind == "path":
        return _folder(call)
    return call.tool


def _prefix(call: Subject) -> str | None:
    words = call.code.literal
    if words is None or len(words) < 2 or words[0] in _QUIET:  # noqa: PLR2004 - a name and more
        return None
    launcher = launches(words) and (words[0] not in _SCRIPTS or words[1] != "run")
    shown = words[:3] if launcher else words[:2]
    if not all(_WORD.fullmatch(word) for word in shown):
        return None
    if interpreter(shown[0]) and shown[1].startswith("-"):
        return None
    if launcher and not _says_what(shown):
        return None
    return f"{call.tool}({' '.join(shown)}:*)"


def _says_what(shown: Sequence[str]) -> bool:
    """True when the word behind ``uv run``, ``docker exec`` and their like names what is run."""
    if len(shown) == 2 or shown[2].startswith("-"):  # noqa: PLR2004 - nothing behind
        return False
    return not carries(shown[2:])


def _folder(call: Subject) -> str | None:
    text, exact = call.text, call.forms.exact
    # A link would make the rule one about a folder that nobody was shown.
    if text is None or exact is None or posixpath.normpath(text) != exact:
        return None
    folder = posixpath.dirname(exact) or "."
    if folder == "/" or _FOLDER.fullmatch(folder) is None:
        return None
    return f"{call.tool}({folder}/**)"
