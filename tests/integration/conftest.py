"""Every script of these tests is held to the tables of moves that the domain states."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from signoff.domain.call import CALL_MOVES
from signoff.domain.gate import GATE_MOVES
from signoff.domain.run import MOVES
from signoff.store import scripts

#: Refuses a write of a state that the table does not allow after the one that stands; a first
#: state and the same state again are no moves. ``%s`` is the three tables.
_GUARD = """
local moves = {%s}
local server = redis
local function hold(what, key, field, to)
  local from = server.call('HGET', key, field)
  if from and from ~= to and not moves[what][from .. '>' .. to] then
    error(what .. ' ' .. key .. ' must not move from ' .. from .. ' to ' .. to)
  end
end
local redis = setmetatable({call = function(...)
  local sent = {...}
  if sent[1] == 'HSET' then
    local what = sent[2]:match(':(%%a+):[^:]+$')
    for i = 3, #sent - 1, 2 do
      local field = tostring(sent[i])
      if what == 'run' and field == 'status' or what == 'gate' and field == 'state'
        or what == 'calls' and field:match('%%.state$') then
        hold(what, sent[2], field, sent[i + 1])
      end
    end
  end
  return server.call(...)
end}, {__index = redis})
"""


def _table(moves: Mapping[Any, frozenset[Any]]) -> str:
    made = (f"['{source}>{target}'] = true" for source, to in moves.items() for target in to)
    return f"{{{', '.join(made)}}}"


@pytest.fixture(scope="session", autouse=True)
def guard() -> Iterator[bytes]:
    """The head of every script: it lets no state move as its table does not."""
    tables: dict[str, Mapping[Any, frozenset[Any]]] = {
        "run": MOVES,
        "gate": GATE_MOVES,
        "calls": CALL_MOVES,
    }
    lua = ", ".join(f"{what} = {_table(moves)}" for what, moves in tables.items())
    head = (_GUARD % lua).encode()
    sources = scripts._sources
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            scripts, "_sources", lambda: {name: head + body for name, body in sources().items()}
        )
        yield head
