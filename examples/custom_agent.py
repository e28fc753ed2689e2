"""An agent of your own behind the port: it greets, asks a person, looks at the answer, and ends.

    SIGNOFF_AGENTS=greeter=examples.custom_agent:make_agent signoff dev --data .signoff --key my-key

and a run with `"model": "agent:greeter"`. Nothing is kept in memory between two steps: what the
agent must know later it returns as `saved`, which is stored together with the gates of the step.
"""  # noqa: INP001 - no package here, as of the demo tools

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace

from signoff import tool
from signoff.agents import Advance, AgentCall, AgentRun, Says, Step, Usage
from signoff.tooldef import Tool


@tool
def send_greeting(name: str, text: str) -> str:
    """Sends a greeting."""
    return f"sent to {name}: {text}"


class Greeter:
    """Two calls of one tool, of which the first is asked, then a summary."""

    async def tools(self, run: AgentRun, saved: bytes | None) -> Mapping[str, Tool]:
        """The tools that the engine may run for this agent: its own and those of the deployment."""
        del saved
        # Its gates carry the schema of the input, since the service does not load this module.
        return {**run.tools, "send_greeting": replace(send_greeting, loaded=False)}

    async def advance(self, turn: Advance) -> Step:
        """What to do next, from what was saved and what has happened since."""
        stage = json.loads(turn.saved)["stage"] if turn.saved else "start"
        if not turn.outcomes:  # a new turn: its message stands last
            name = turn.messages[-1].text or "you"
            await turn.on_text("Hello! ")  # for those who watch; the step repeats it in full
            call = AgentCall(
                id=f"greet_{turn.run.turn}",
                name="send_greeting",
                input={"name": name, "text": "Good morning"},
                says=Says.ASK,  # a person is asked, unless a rule or autonomous mode answers
                suggested_rules=({"tool": "send_greeting", "effect": "allow"},),
            )
            return Step(text="Hello! ", calls=(call,), saved=_saved("greeted"), usage=Usage())
        (outcome,) = turn.outcomes
        if stage == "greeted" and outcome.state == "success":
            # Says.ALLOW: the agent needs nobody for this one; deny and ask rules stand above it.
            call = AgentCall(
                id=f"again_{turn.run.turn}",
                name="send_greeting",
                input={"name": "everybody", "text": "Good evening"},
                says=Says.ALLOW,
            )
            return Step(calls=(call,), saved=_saved("twice"))
        # Without calls the turn is over, and the text is the run's output. In a run that owes a
        # structured one (``turn.run.output_schema``) it would be JSON text that fits, or the run
        # fails: this step is not ``correctable``, so no correction comes, which it would take for
        # a new turn.
        return Step(text=f"The last one: {outcome.content}", saved=_saved("start"))


def make_agent(run: AgentRun) -> Greeter:
    """Called anew for every step; ``run`` says for whom: id, user, instructions, metadata, mode."""
    del run
    return Greeter()


def _saved(stage: str) -> bytes:
    return json.dumps({"stage": stage}).encode()
