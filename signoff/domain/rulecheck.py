"""What may be stored as a rule: a text that states something that can happen."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from signoff.domain.approval import Approval
from signoff.domain.error import InvalidFieldError
from signoff.domain.gate import ASK_TOOL, PLAN_TOOL
from signoff.domain.glob import Glob
from signoff.domain.pattern import NAME, Kind, Pattern, looks_like, pattern_of
from signoff.domain.rule import Verdict

ASKS_A_PERSON = frozenset({ASK_TOOL, PLAN_TOOL})


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownTool:
    """What is known of a tool: how its patterns are meant, and its parameters."""

    kind: Kind | None
    parameters: Collection[str] | None = None


def check_rule(
    text: str, effect: Verdict, tools: Mapping[str, KnownTool | None], *, field: str = "tool"
) -> Pattern:
    """The pattern of a rule that may be stored; raises InvalidFieldError that says what is wrong.

    A tool that is not among ``tools`` may come later, so its rule is checked for its form alone.
    """
    name = text.partition("(")[0]
    _check_name(name, tools, field)
    pattern = pattern_of(text)
    if pattern is None:
        msg = f"{field}: {_shown(text)} is no name, Name(pattern) or mcp__server__*"
        raise InvalidFieldError(msg, code="invalid_pattern", field=field)
    allow = effect is Verdict.ALLOW
    if allow and (instead := _stuck(pattern, tools.get(name))):
        msg = (
            f"{field}: a star that sticks to a word stands for the rest of that word and for no "
            f"further ones; for those state {_shown(instead)}"
        )
        raise InvalidFieldError(msg, code="invalid_pattern", field=field)
    if name in ASKS_A_PERSON and allow:
        msg = f"{field}: {name} asks a person and can never be allowed by a rule"
        raise InvalidFieldError(msg, code="reserved_tool", field=field)
    known = tools.get(name)
    if known is not None and not pattern.reads(known.kind):
        raise InvalidFieldError(_unread(name, known), code="invalid_pattern", field=field)
    if allow and (why := _never(pattern, known)):
        raise InvalidFieldError(f"{field}: {why}", code="pattern_never_matches", field=field)
    return pattern


def check_limits(
    effect: Verdict, *, max_uses: int | None, approval: Approval | None, field: str = ""
) -> None:
    """Raises InvalidFieldError for a limit that means nothing with the effect."""
    if max_uses is not None and effect is not Verdict.ALLOW:
        raise InvalidFieldError("max_uses: only an allow is used up", field=f"{field}max_uses")
    if approval is not None and effect is not Verdict.ASK:
        msg = f"{field}approvers: only an ask is decided by somebody"
        raise InvalidFieldError(msg, field=f"{field}approvers")


def _check_name(name: str, tools: Mapping[str, KnownTool | None], field: str) -> None:
    plain = name.replace("*", "")
    if any(char.isspace() or not char.isprintable() or not char.isascii() for char in name):
        wrong = "spaces or control characters" if name.isascii() else "anything but plain ASCII"
        msg = f"{field}: {_shown(name)} only looks like a tool's name: none holds {wrong}"
        raise InvalidFieldError(msg, code="lookalike_name", field=field)
    if (plain or not name) and NAME.fullmatch(plain) is None:
        msg = f"{field}: a name has 1 to 128 letters, digits, dots, underscores and hyphens"
        raise InvalidFieldError(msg, field=field)
    if name in tools or name in ASKS_A_PERSON:
        return
    alike = looks_like(name)
    for known in (*tools, *ASKS_A_PERSON):
        if looks_like(known) == alike:
            msg = f"{field}: {_shown(name)} is not {known}; names are compared exactly"
            raise InvalidFieldError(msg, code="lookalike_name", field=field)


def _unread(name: str, known: KnownTool) -> str:
    form = {
        "shell": f"a literal command: {name}(git status:*)",
        "path": f"a path: {name}(/srv/data/**)",
        None: f"named arguments: {name}(to=*@example.com)",
    }[known.kind]
    return f"tool: the pattern of {name} is {form}"


def _never(pattern: Pattern, known: KnownTool | None) -> str | None:
    """Why an allow of this pattern would never cover a call; None if it can."""
    server = _never_server(pattern.name)
    if server is not None or pattern.body is None:
        return server
    if known is None:
        shell_only = pattern.path is None and pattern.arguments is None
        return _never_shell(pattern) if shell_only else None
    if known.kind == "shell":
        return _never_shell(pattern)
    if known.kind is None and known.parameters is not None:
        for name, _ in pattern.arguments or ():
            if name not in known.parameters:
                return f"the tool has no parameter {name}"
    return None


def _never_server(name: Glob) -> str | None:
    """The same of names and patterns of names that are about MCP servers, or about everything."""
    if name.literal is None:
        server = name.literals[0].removeprefix("mcp__")
        if not server.endswith("__") or not server.strip("_") or "__" in server[:-2]:
            return "an allow names its MCP server before any star: mcp__server__*"
        return None
    server, _, tool = name.literal.removeprefix("mcp__").partition("__")
    if (server and tool) or not name.literal.startswith("mcp__"):
        return None
    prefix = f"mcp__{server or 'server'}__"
    return f"an allow of all tools of an MCP server is {prefix}*, and one of its tools {prefix}tool"


def _stuck(pattern: Pattern, known: KnownTool | None) -> str | None:
    """What was probably meant by an allow of a command that ends in a word with a star."""
    if known is None or known.kind != "shell" or pattern.shell is None or not pattern.shell.stuck:
        return None
    return f"{pattern.text.removesuffix('*)')}:*)"


def _never_shell(pattern: Pattern) -> str | None:
    if pattern.shell is None or pattern.shell.allowable:
        return None
    return (
        "the first word of an allow is a command's name, and not that of a shell, a wrapper or an "
        "interpreter of code on the command line: only what it would run could be allowed"
    )


def _shown(text: str) -> str:
    shown = ascii(text)
    return shown if len(shown) <= 80 else f"{shown[:76]}..."  # noqa: PLR2004 - one line
