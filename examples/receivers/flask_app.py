"""A receiver on Flask; SIGNOFF_WEBHOOK_SECRET and SIGNOFF_CALLBACK_URL say whose."""

import os
from concurrent.futures import ThreadPoolExecutor

from flask import Flask, Response, request

from examples.receivers.reviewer import Reviewer
from signoff import SignatureError

reviewer = Reviewer()
background = ThreadPoolExecutor()
app = Flask(__name__)


@app.post("/hooks")
def hooks() -> Response:
    """Takes one delivery; get_data before anything else has read the body."""
    try:
        event = reviewer.accept(request.get_data(), list(request.headers))
    except SignatureError:
        return Response(status=401)
    if event is None:
        return Response(status=200)
    background.submit(reviewer.handle, event)
    return Response(status=202)


if __name__ == "__main__":
    app.run(port=int(os.environ.get("PORT", "9000")))
