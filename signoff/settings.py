"""The only reader of the environment: every setting with its default and its limits."""

from __future__ import annotations

import base64
import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NoReturn
from urllib.parse import SplitResult, parse_qsl, urlencode, urlsplit

from signoff.domain.delivery import DEFAULT_SCHEDULE
from signoff.domain.error import SettingsError
from signoff.mcpserver import McpServer, read_servers
from signoff.model_name import SCRIPTED

_MAX_DELAY_S = 30 * 86_400.0
_MAX_ATTEMPTS = 50
_LAST_DB = 15  # a stock Redis has the databases 0 to 15
_FERNET_KEY = re.compile(r"[A-Za-z0-9_-]{43}=")
_INTEGER = re.compile(r"[0-9]{1,9}")
_DECIMAL = re.compile(r"(?:[0-9]{1,9}(?:\.[0-9]{0,9})?|\.[0-9]{1,9})")
_MODULE = re.compile(r"[^\W\d]\w*(?:\.[^\W\d]\w*)*")
_IMPORT = re.compile(rf"([A-Za-z0-9_-]{{1,64}})\s*=\s*({_MODULE.pattern}:{_MODULE.pattern})")
_FLAGS = {
    **dict.fromkeys(("1", "true", "yes", "on"), True),
    **dict.fromkeys(("0", "false", "no", "off"), False),
}
_BROKER_SCHEMES = ("redis", "rediss", "redis+socket", "sentinel", "unix")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Everything the processes take from the environment; secrets stay out of its ``repr``."""

    redis_url: str = field(repr=False)
    broker_url: str = field(repr=False)
    secret_keys: tuple[str, ...] = field(repr=False)
    public_url: str | None
    tools: str
    #: Name to ``module:attribute``.
    agents: Mapping[str, str]
    agent_timeout_s: float
    mcp_servers: Mapping[str, McpServer]
    webhook_allow: str | None
    webhook_schedule: tuple[float, ...]
    lease_s: float
    sweep_s: float
    shards: int
    worker_slots: int
    scripted_model: bool
    scripted_delay_ms: int
    allow_volatile_redis: bool
    demo_ledger: str | None
    anthropic_api_key: str | None = field(repr=False)
    openai_api_key: str | None = field(repr=False)
    openai_base_url: str | None
    default_model: str
    dev: bool

    @classmethod
    def load(cls, environ: Mapping[str, str]) -> Settings:
        """Read all settings; the first unusable value raises `SettingsError` naming it."""
        read = _Reader(environ)
        redis_url = read.redis_url("SIGNOFF_REDIS_URL", "redis://127.0.0.1:6379/0")
        anthropic_api_key = read.text("ANTHROPIC_API_KEY")
        openai_api_key = read.text("OPENAI_API_KEY")
        openai_base_url = read.http_url("OPENAI_BASE_URL")
        scripted_model = read.flag("SIGNOFF_SCRIPTED_MODEL")
        default_model = read.text("SIGNOFF_DEFAULT_MODEL") or _default_model(
            anthropic=anthropic_api_key is not None,
            openai=openai_api_key is not None or openai_base_url is not None,
            scripted=scripted_model,
        )
        return cls(
            redis_url=redis_url,
            broker_url=read.broker_url("SIGNOFF_BROKER_URL", redis_url),
            secret_keys=read.fernet_keys("SIGNOFF_SECRET_KEYS"),
            public_url=read.http_url("SIGNOFF_PUBLIC_URL"),
            tools=read.modules("SIGNOFF_TOOLS"),
            agents=read.import_paths("SIGNOFF_AGENTS"),
            agent_timeout_s=read.decimal("SIGNOFF_AGENT_TIMEOUT_S", 900.0, low=1.0, high=86400.0),
            mcp_servers=read.mcp_servers("SIGNOFF_MCP_SERVERS"),
            webhook_allow=read.networks("SIGNOFF_WEBHOOK_ALLOW"),
            webhook_schedule=read.delays("SIGNOFF_WEBHOOK_SCHEDULE", DEFAULT_SCHEDULE),
            lease_s=read.decimal("SIGNOFF_LEASE_S", 30.0, low=0.1, high=3600.0),
            sweep_s=read.decimal("SIGNOFF_SWEEP_S", 2.0, low=0.05, high=3600.0),
            shards=read.integer("SIGNOFF_SHARDS", 1, low=1, high=100),
            worker_slots=read.integer("SIGNOFF_WORKER_SLOTS", 32, low=1, high=1024),
            scripted_model=scripted_model,
            scripted_delay_ms=read.integer("SIGNOFF_SCRIPTED_DELAY_MS", 0, low=0, high=600_000),
            allow_volatile_redis=read.flag("SIGNOFF_ALLOW_VOLATILE_REDIS"),
            demo_ledger=read.text("SIGNOFF_DEMO_LEDGER"),
            anthropic_api_key=anthropic_api_key,
            openai_api_key=openai_api_key,
            openai_base_url=openai_base_url,
            default_model=default_model,
            dev=read.flag("SIGNOFF_DEV"),
        )

    @property
    def has_provider(self) -> bool:
        """True when a model provider other than the scripted one is configured."""
        given = (self.anthropic_api_key, self.openai_api_key, self.openai_base_url)
        return any(value is not None for value in given)

    def require_secret_keys(self) -> tuple[str, ...]:
        """Return the Fernet keys, or raise because this process cannot do without one."""
        if not self.secret_keys:
            raise SettingsError(
                "SIGNOFF_SECRET_KEYS is required: one or more Fernet keys, separated by commas",
                field="SIGNOFF_SECRET_KEYS",
            )
        return self.secret_keys


class _Reader:
    """Typed, strict access to one mapping; blank values count as unset unless said otherwise."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ

    def text(self, name: str) -> str | None:
        value = self._environ.get(name, "").strip()
        if any(character < " " or character == "\x7f" for character in value):
            _refuse(name, "contains control characters")
        return value or None

    def flag(self, name: str) -> bool:
        value = self.text(name)
        if value is None:
            return False
        if value.lower() not in _FLAGS:
            _refuse(name, f"must be 1 or 0, not {_shorten(value)}")
        return _FLAGS[value.lower()]

    def integer(self, name: str, default: int, *, low: int, high: int) -> int:
        value = self.text(name)
        if value is None:
            return default
        if not _INTEGER.fullmatch(value) or not low <= int(value) <= high:
            _refuse(name, f"must be a whole number from {low} to {high}, not {_shorten(value)}")
        return int(value)

    def decimal(self, name: str, default: float, *, low: float, high: float) -> float:
        value = self.text(name)
        if value is None:
            return default
        if not _DECIMAL.fullmatch(value) or not low <= float(value) <= high:
            _refuse(name, f"must be a number from {low:g} to {high:g}, not {_shorten(value)}")
        return float(value)

    def delays(self, name: str, default: tuple[float, ...]) -> tuple[float, ...]:
        value = self.text(name)
        if value is None:
            return default
        items = [item.strip() for item in value.split(",")]
        if len(items) > _MAX_ATTEMPTS:
            _refuse(name, f"has {len(items)} delays; at most {_MAX_ATTEMPTS} attempts are made")
        for item in items:
            if not _DECIMAL.fullmatch(item) or float(item) > _MAX_DELAY_S:
                _refuse(
                    name, f"must be delays in seconds with commas between, not {_shorten(item)}"
                )
        return tuple(float(item) for item in items)

    def fernet_keys(self, name: str) -> tuple[str, ...]:
        keys = [item.strip() for item in (self.text(name) or "").split(",") if item.strip()]
        for place, key in enumerate(keys, start=1):
            # The value is a secret: the message says which one, never what it is.
            if not _FERNET_KEY.fullmatch(key) or len(base64.urlsafe_b64decode(key)) != 32:  # noqa: PLR2004 - Fernet: 16 bytes sign, 16 encrypt
                _refuse(name, f"key {place} is not a Fernet key (32 bytes in url-safe base64)")
        if len(set(keys)) != len(keys):
            _refuse(name, "names the same key twice")
        return tuple(keys)

    def mcp_servers(self, name: str) -> dict[str, McpServer]:
        return read_servers(self.text(name), setting=name)

    def modules(self, name: str) -> str:
        modules = [item.strip() for item in (self.text(name) or "").split(",") if item.strip()]
        for module in modules:
            if not _MODULE.fullmatch(module):
                _refuse(name, f"must be module names with commas between, not {_shorten(module)}")
        return ",".join(modules)

    def import_paths(self, name: str) -> dict[str, str]:
        paths: dict[str, str] = {}
        for item in (part.strip() for part in (self.text(name) or "").split(",")):
            if not item:
                continue
            found = _IMPORT.fullmatch(item)
            if found is None:
                _refuse(
                    name,
                    f"must be name=module:attribute, with commas between, not {_shorten(item)}",
                )
            if found[1] in paths:
                _refuse(name, f"names {_shorten(found[1])} twice")
            paths[found[1]] = found[2]
        return paths

    def networks(self, name: str) -> str | None:
        if name not in self._environ:
            return None
        networks = [item.strip() for item in (self.text(name) or "").split(",") if item.strip()]
        for network in networks:
            try:
                ipaddress.ip_network(network)  # as strict as webhooks.guard, which reads it
            except ValueError:
                _refuse(name, f"must be networks such as 10.0.0.0/8, not {_shorten(network)}")
        return ",".join(networks)

    def http_url(self, name: str) -> str | None:
        value = self.text(name)
        if value is None:
            return None
        parts = _split(name, value)
        if parts.scheme not in ("http", "https") or not parts.hostname or " " in value:
            _refuse(name, "must be an http or https URL with a host")
        if "@" in parts.netloc or parts.query or parts.fragment:
            _refuse(name, "must be a plain URL: no user, no query, no fragment")
        return value.rstrip("/")

    def redis_url(self, name: str, default: str) -> str:
        value = self.text(name) or default
        parts = _split(name, value)
        if parts.scheme == "unix":
            if parts.hostname or len(parts.path) < 2:  # noqa: PLR2004 - a slash and a name
                _refuse(name, "needs an absolute socket path: unix:///path/to/socket?db=0")
        elif parts.scheme not in ("redis", "rediss") or not parts.hostname:
            _refuse(name, "must be redis://host:port/db, rediss://… or unix:///path?db=0")
        _database(name, parts)
        return value

    def broker_url(self, name: str, redis_url: str) -> str:
        value = self.text(name)
        if value is None:
            parts = urlsplit(redis_url)
            number = _database(name, parts)
            # Past the last database the broker shares it: its keys have a prefix of their own.
            return _broker_form(parts, min(number + 1, max(number, _LAST_DB)))
        scheme, mark, _ = value.partition("://")
        if not mark or scheme not in _BROKER_SCHEMES:
            _refuse(name, f"must begin with one of {', '.join(_BROKER_SCHEMES)}, then ://")
        if scheme == "unix":
            parts = _split(name, value)
            return _broker_form(parts, _database(name, parts))
        # Not taken apart: several sentinels, or several servers, may stand in it with semicolons.
        return value


def _broker_form(parts: SplitResult, number: int) -> str:
    """Write a Redis URL the way kombu reads it, with another database number."""
    if parts.scheme == "unix":
        return f"redis+socket://{parts.netloc}{parts.path}?virtual_host={number}"
    query = {key: text for key, text in parse_qsl(parts.query) if key.startswith("ssl_")}
    if parts.scheme == "rediss":
        # Without this kombu opens a connection that checks no certificate.
        query.setdefault("ssl_cert_reqs", "required")
    tail = f"?{urlencode(query)}" if query else ""
    return f"{parts.scheme}://{parts.netloc}/{number}{tail}"


def _database(name: str, parts: SplitResult) -> int:
    """Return the database number of a Redis URL; redis-py would take a malformed one for 0."""
    queried = dict(parse_qsl(parts.query)).get("db")
    in_path = "" if parts.scheme == "unix" else parts.path.strip("/")
    text = queried if queried is not None else in_path
    if text and not _INTEGER.fullmatch(text):
        _refuse(name, "has a database that is not a number")
    return int(text or "0")


def _split(name: str, value: str) -> SplitResult:
    try:
        parts = urlsplit(value)
        _ = parts.port  # parsed, and so checked, only when it is read
    except ValueError:
        _refuse(name, "is not a URL")
    return parts


def _default_model(*, anthropic: bool, openai: bool, scripted: bool) -> str:
    if anthropic:
        return "anthropic:claude-sonnet-5-5"
    if openai:
        return "openai:gpt-6.1-sol"
    return SCRIPTED if scripted else ""


def _shorten(value: str) -> str:
    shown = value if len(value) <= 40 else f"{value[:40]}…"  # noqa: PLR2004 - one screen line
    return f'"{shown}"'


def _refuse(name: str, problem: str) -> NoReturn:
    raise SettingsError(f"{name} {problem}", field=name)
