"""MCP servers as operators name them: read and checked once, before anything is started."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn
from urllib.parse import urlsplit

from signoff.domain.error import SettingsError

#: What the name of every tool of an MCP server begins with, and no other tool's.
MCP_PREFIX = "mcp__"
DEFAULT_TIMEOUT_S = 60.0
MAX_TIMEOUT_S = 3600.0
MAX_SERVERS = 64

# Without "__" and without an underscore at its end, so that the first "__" behind the prefix ends
# the server's name: no two servers can have tools of the same full name.
_NAME = re.compile(r"[a-z0-9-]+(?:_[a-z0-9-]+)*")
_MAX_NAME = 32
_FULL = re.compile(r"mcp__([a-z0-9-]+(?:_[a-z0-9-]+)*)__([A-Za-z0-9_-]+)")
_MAX_FULL = 64
_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_KEYS = frozenset(
    {"args", "command", "cwd", "env", "headers", "timeout", "tools", "trusted", "url"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class McpServer:
    """One server: a command that is started, or an address; what may hold secrets is not shown."""

    name: str
    command: str | None = None
    args: tuple[str, ...] = field(default=(), repr=False)
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    cwd: str | None = None
    url: str | None = field(default=None, repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    #: Whether what its tools say about their effects is believed.
    trusted: bool = False
    timeout_s: float = DEFAULT_TIMEOUT_S
    #: The tools that are offered; None: all.
    tools: tuple[str, ...] | None = None


def full_name(server: str, tool: str) -> str | None:
    """``mcp__server__tool``; None when that is no name that a tool can have."""
    name = f"{MCP_PREFIX}{server}__{tool}"
    found = _FULL.fullmatch(name)
    if found is None or len(name) > _MAX_FULL or found[1] != server:
        return None
    return name


def server_of(name: str) -> str | None:
    """The server that a tool of this name belongs to; None for other tools."""
    found = _FULL.fullmatch(name)
    return None if found is None or len(name) > _MAX_FULL else found[1]


#: What is shown of a header that an account keeps here; no header can have this value.
MASK = "\u2026"


def is_server_name(name: str) -> bool:
    """Whether a server may be called so."""
    return _NAME.fullmatch(name) is not None and len(name) <= _MAX_NAME


def can_be_sent(name: str, value: str) -> bool:
    """Whether this is a header; visible ASCII only, and no spaces around it."""
    plain = value.isascii() and value.isprintable() and value == value.strip() != ""
    return plain and _HEADER.fullmatch(name) is not None


def own_names(servers: Iterable[Any] | None) -> frozenset[str]:
    """The names among ``mcp_servers``, as stored, that are no operator's."""
    return frozenset(item["name"] for item in servers or () if not isinstance(item, str))


def shown_servers(servers: Iterable[Any] | None) -> list[Any] | None:
    """``mcp_servers`` as everybody may see them: of headers the names alone."""
    if servers is None:
        return None
    return [item if isinstance(item, str) else _shown_server(item) for item in servers]


def _shown_server(item: Mapping[str, Any]) -> dict[str, Any]:
    headers = dict.fromkeys(item.get("header_names", ()), MASK)
    return {"name": item["name"], "url": item["url"], "headers": headers}


def read_servers(text: str | None, *, setting: str) -> dict[str, McpServer]:
    """The servers of a JSON object by name; raises SettingsError that says which part is wrong.

    Values are never repeated in a message: they hold keys.
    """
    if text is None:
        return {}
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        _refuse(setting, "must be a JSON object of server names and their settings")
    if len(value) > MAX_SERVERS:
        _refuse(setting, f"names more than {MAX_SERVERS} servers")
    return {name: _server(name, item, setting) for name, item in value.items()}


def _server(name: str, item: Any, setting: str) -> McpServer:
    if not is_server_name(name):
        _refuse(
            setting,
            f"{name[:64]!a} is no name of a server: 1 to {_MAX_NAME} of a-z, 0-9, hyphens and "
            "single underscores within",
        )
    if not isinstance(item, dict):
        _refuse(setting, f"{name} must be an object")
    for key in item:
        if key not in _KEYS:
            _refuse(setting, f"{name} has an unknown field {key[:64]!a}")
    if ("command" in item) == ("url" in item):
        _refuse(setting, f"{name} needs either a command or a url")
    other = ("headers",) if "command" in item else ("args", "env", "cwd")
    for key in other:
        if key in item:
            _refuse(
                setting, f"{name}.{key} does not go with {'command' if key == 'headers' else 'url'}"
            )
    read = _Reader(name, item, setting)
    return McpServer(
        name=name,
        command=read.text("command"),
        args=read.texts("args") or (),
        env=read.texts_by_name("env"),
        cwd=read.text("cwd"),
        url=read.url("url"),
        headers=read.headers("headers"),
        trusted=read.flag("trusted"),
        timeout_s=read.seconds("timeout"),
        tools=read.texts("tools"),
    )


class _Reader:
    """The typed fields of one server."""

    def __init__(self, name: str, item: Mapping[str, Any], setting: str) -> None:
        self._name, self._item, self._setting = name, item, setting

    def text(self, key: str) -> str | None:
        value = self._item.get(key)
        if value is None and key not in self._item:
            return None
        if not isinstance(value, str) or not value or "\0" in value:
            self._wrong(key, "must be a text")
        return value

    def texts(self, key: str) -> tuple[str, ...] | None:
        if key not in self._item:
            return None
        value = self._item[key]
        if not isinstance(value, list) or not all(_is_text(item) for item in value):
            self._wrong(key, "must be a list of texts")
        return tuple(value)

    def texts_by_name(self, key: str) -> dict[str, str]:
        value = self._item.get(key, {})
        if not isinstance(value, dict) or not all(_is_text(text) for text in value.values()):
            self._wrong(key, "must be an object of texts")
        if any(not name or "=" in name or "\0" in name for name in value):
            self._wrong(key, "has a name that no variable can have")
        return value

    def headers(self, key: str) -> dict[str, str]:
        value = self.texts_by_name(key)
        for name, text in value.items():
            if not _HEADER.fullmatch(name) or not text.isascii() or not text.isprintable():
                self._wrong(key, "has a header that cannot be sent")
        return value

    def flag(self, key: str) -> bool:
        value = self._item.get(key, False)
        if not isinstance(value, bool):
            self._wrong(key, "must be true or false")
        return value

    def seconds(self, key: str) -> float:
        value = self._item.get(key, DEFAULT_TIMEOUT_S)
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if not number or not math.isfinite(value) or not 0 < value <= MAX_TIMEOUT_S:
            self._wrong(key, f"must be a number of seconds up to {MAX_TIMEOUT_S:g}")
        return float(value)

    def url(self, key: str) -> str | None:
        value = self.text(key)
        if value is None:
            return None
        try:
            parts = urlsplit(value)
            fits = parts.scheme in ("http", "https") and bool(parts.hostname)
            fits = fits and "@" not in parts.netloc and not parts.fragment
            _ = parts.port
        except ValueError:
            fits = False
        if not fits or not value.isascii() or not value.isprintable() or " " in value:
            self._wrong(key, "must be an http or https URL without credentials")
        return value

    def _wrong(self, key: str, what: str) -> NoReturn:
        _refuse(self._setting, f"{self._name}.{key} {what}")


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and "\0" not in value


def _refuse(setting: str, what: str) -> NoReturn:
    raise SettingsError(f"{setting} {what}", field=setting)
