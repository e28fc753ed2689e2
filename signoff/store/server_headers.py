"""The headers of an account's MCP server at rest: sealed for that account and that address."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from signoff.store.runs import dumps
from signoff.store.sealing import Seal


class ServerHeaders:
    """Seals and opens; what was sealed for another account, name or URL does not open."""

    def __init__(self, seal: Seal) -> None:
        self._seal = seal

    def close(self, account: str, server: Mapping[str, Any], headers: Mapping[str, str]) -> str:
        """The headers as agents and runs keep them."""
        return self._seal.close(dumps(headers), _purpose(account, server))

    def open(self, account: str, server: Mapping[str, Any]) -> dict[str, str]:
        """The headers of a stored server; raises SealError for what is not its own."""
        if "sealed" not in server:
            return {}
        found: dict[str, str] = json.loads(
            self._seal.open(server["sealed"], _purpose(account, server))
        )
        return found


def _purpose(account: str, server: Mapping[str, Any]) -> str:
    return dumps(["mcp-headers", account, server["name"], server["url"]])
