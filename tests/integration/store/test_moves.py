"""The tables of moves, as the scripts of these tests are held to them."""

from collections.abc import Mapping
from itertools import product
from typing import Any

import pytest
from redis.exceptions import ResponseError

from signoff.domain.call import CALL_MOVES
from signoff.domain.gate import GATE_MOVES
from signoff.domain.run import MOVES
from signoff.store.facade import Store

pytestmark = pytest.mark.anyio
WRITE = b"return redis.call('HSET', KEYS[1], 'other', '', ARGV[1], ARGV[2])"
TABLES: dict[str, Mapping[Any, frozenset[Any]]] = {
    "run:1 status": MOVES,
    "gate:req_1 state": GATE_MOVES,
    "calls:1 3.state": CALL_MOVES,
}


@pytest.mark.parametrize("place", TABLES)
async def test_a_script_that_leaves_the_table_fails(store: Store, guard: bytes, place: str) -> None:
    """Of all pairs of states those of the table can be written, and the same state again."""
    moves = TABLES[place]
    key, field = f"sg:{{s0}}:{place}".split(" ")
    call = store.connection.call
    for source, target in product(moves, moves):
        await call("DEL", key)
        await call("EVAL", guard + WRITE, 1, key, field, source)
        move = call("EVAL", guard + WRITE, 1, key, field, target)
        if target in moves[source] or source is target:
            await move
            continue
        with pytest.raises(ResponseError, match=f"must not move from {source} to {target}"):
            await move
