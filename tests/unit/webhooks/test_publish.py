"""What events tell of gates."""

from typing import Any, cast

from signoff.domain.gate import Gate, GateKind, GateState
from webhooks.publish import Publisher

OUT = {"type": "object", "properties": {"code": {"type": "string"}}}


def test_later_events_tell_of_a_gate_what_the_first_one_told() -> None:
    """Reminders and expiries show an external call with the form of the result it waits for."""
    publisher = Publisher(cast("Any", None), now_ms=lambda: 5, token=lambda: "t")
    first = publisher.request_payload(
        request_id="req_1",
        kind=GateKind.EXTERNAL,
        tool="book",
        tool_input={"room": "1"},
        digest="d",
        suggested_rules=(),
        output_schema=OUT,
    )
    gate = Gate(
        id="req_1",
        run_id=1,
        kind=GateKind.EXTERNAL,
        state=GateState.PENDING,
        pause=1,
        tool="book",
        tool_use_id="call_1",
        tool_input={"room": "1"},
        digest="d",
        suggested_rules=(),
        created_ms=5,
        output_schema=OUT,
    )
    assert publisher.gate_payload(gate) == first
    assert first["output_schema"] == OUT
