"""What the watchers of a run are shown of a step and of its end."""

from __future__ import annotations

from collections.abc import Mapping

from signoff.agents import Step
from signoff.domain.frame import call_frames, frame, gate_frames, result_frames
from signoff.domain.jsontext import compact
from signoff.domain.money import MICROS
from signoff.store.steps import Ending
from signoff.strictjson import well_formed
from workers.judging import JudgedStep, storable


def step_frames(judged: JudgedStep, model_end: bytes) -> list[bytes]:
    """The calls of a step, those results that are there already, and the gates that open."""
    frames: list[bytes] = []
    for call in judged.calls:
        frames.extend(call_frames(call.id, call.tool, call.input_json))
        if call.result is not None:
            frames.extend(result_frames(call.id, call.result))
    frames.append(model_end)
    for opened in judged.gates:
        shown = {
            "request_id": opened.gate.id,
            "kind": opened.gate.kind.value,
            "tool_name": opened.tool,
            "tool_input": opened.tool_input,
            "digest": opened.digest,
            "suggested_rules": opened.gate.suggested_rules,
        }
        frames.extend(gate_frames(shown, judged.calls[opened.gate.n].id))
    return frames


def end_frames(ending: Ending, took_ms: int, usage: Mapping[str, int]) -> list[bytes]:
    """The run summed up, then its end."""
    metrics = frame(
        "run_metrics",
        execution_time_ms=max(0, took_ms),
        input_tokens_used=usage["input_tokens"],
        output_tokens_used=usage["output_tokens"],
        claude_token_cost_usd=usage["cost_micros"] / MICROS,
        stop_reason="end_turn" if ending.status == "completed" else "error",
        completion_state=ending.status,
        unresolved_tool_use_ids=[],
    )
    if ending.error is not None:
        return [metrics, frame("error", error=ending.error, error_code=ending.error_code)]
    return [metrics, frame("done", stop_reason="end_turn")]


def earlier_frames(step: Step) -> list[bytes]:
    """What watchers are shown of the calls in earlier rounds."""
    frames: list[bytes] = []
    for call in (call for part in step.earlier for call in part.calls):
        if call.settled is not None:
            frames.extend(call_frames(call.id, call.name, compact(storable(call).input)))
            result = {"state": call.settled.state, "content": well_formed(call.settled.content)}
            frames.extend(result_frames(call.id, result))
    return frames
