"""A receiver on FastAPI; SIGNOFF_WEBHOOK_SECRET and SIGNOFF_CALLBACK_URL say whose."""

import os

import uvicorn
from fastapi import BackgroundTasks, FastAPI, Request, Response

from examples.receivers.reviewer import Reviewer
from signoff import SignatureError

reviewer = Reviewer()
app = FastAPI()


@app.post("/hooks")
async def hooks(request: Request, tasks: BackgroundTasks) -> Response:
    """Takes one delivery; a body model would parse what has to be verified first."""
    try:
        event = reviewer.accept(await request.body(), request.headers.raw)
    except SignatureError:
        return Response(status_code=401)
    if event is None:
        return Response(status_code=200)
    # Without returning a Response of our own, FastAPI would attach the tasks by itself.
    tasks.add_task(reviewer.handle, event)
    return Response(status_code=202, background=tasks)


if __name__ == "__main__":
    uvicorn.run(app, port=int(os.environ.get("PORT", "9000")), log_level="warning")
