"""Numbers for those who run the service, in the text format of Prometheus; at the root, no key."""

from __future__ import annotations

from starlette.responses import Response
from starlette.types import Receive, Scope

from service.context import Context
from service.operation import Answer, operation
from signoff.store.gauges import Reading

MEDIA = "text/plain"
_TYPE = f"{MEDIA}; version=0.0.4; charset=utf-8"


@operation(Answer(status=200, media=MEDIA, about="The numbers."))
async def metrics(context: Context, scope: Scope, receive: Receive) -> Response:
    """How much there is and how late it is, over all accounts; not for the public."""
    del scope, receive
    text = written(await context.store.gauges.read())
    return Response(text, headers={"cache-control": "no-store", "content-type": _TYPE})


def written(reading: Reading) -> str:
    """The reading as Prometheus reads it."""
    rows: list[tuple[str, str, str, float]] = [
        ("ready_runs", "", "Runs with due work that no worker has taken.", reading.ready_runs),
        ("leased_runs", "", "Runs that a worker holds.", reading.leased_runs),
        ("listed_runs", "", "Runs that are not archived.", reading.runs),
        (
            "runs",
            '{status="awaiting_approval"}',
            "Runs by status, as far as it is cheap to know.",
            reading.waiting_runs,
        ),
        ("open_gates", "", "Gates that wait for a decision.", reading.open_gates),
        ("awake_workers", "", "Workers that look for due work.", reading.awake_workers),
        ("due_deliveries", "", "Deliveries that are due.", reading.due_deliveries),
        (
            "oldest_due_delivery_seconds",
            "",
            "How long the first of them is due.",
            reading.oldest_due_s,
        ),
        (
            "deliveries_in_flight",
            "",
            "Deliveries that a relay is making.",
            reading.deliveries_in_flight,
        ),
    ]
    about = "Seconds since the newest sign of life of such a process."
    rows += [
        ("heartbeat_age_seconds", f'{{kind="{kind}"}}', about, silent)
        for kind, silent in reading.silent_s.items()
        if silent is not None
    ]
    lines: dict[str, None] = {}
    for name, labels, help_text, value in rows:
        lines[f"# HELP signoff_{name} {help_text}"] = None
        lines[f"# TYPE signoff_{name} gauge"] = None
        lines[f"signoff_{name}{labels} {value:.10g}"] = None
    return "\n".join(lines) + "\n"
