"""A receiver on Starlette; SIGNOFF_WEBHOOK_SECRET and SIGNOFF_CALLBACK_URL say whose."""

import os

import uvicorn
from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from examples.receivers.reviewer import Reviewer
from signoff import SignatureError

reviewer = Reviewer()


async def hooks(request: Request) -> Response:
    """Takes one delivery."""
    try:
        event = reviewer.accept(await request.body(), request.headers.raw)
    except SignatureError:
        return Response(status_code=401)
    if event is None:
        return Response(status_code=200)
    # A plain function runs in a thread, after the answer: deliveries have a deadline.
    return Response(status_code=202, background=BackgroundTask(reviewer.handle, event))


app = Starlette(routes=[Route("/hooks", hooks, methods=["POST"])])

if __name__ == "__main__":
    uvicorn.run(app, port=int(os.environ.get("PORT", "9000")), log_level="warning")
