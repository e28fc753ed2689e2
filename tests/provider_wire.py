"""A server on a real socket that speaks a provider's wire, and what it was asked."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any


class Wire:
    """What the stub answers next, and what it was asked."""

    def __init__(self) -> None:
        self.status = 200
        self.body: dict[str, Any] = {}
        self.headers: dict[str, str] = {}
        self.chunks: list[dict[str, Any]] = []
        #: What is answered first, request by request.
        self.turns: list[list[dict[str, Any]]] = []
        self.cut_off = False
        self.requests: list[dict[str, Any]] = []
        self.keys: list[str | None] = []
        self.url = ""

    def say(self, *deltas: dict[str, Any], finish: str = "stop") -> None:
        """Stream ``deltas``, then the reason, then the usage."""
        self.chunks = streamed(*deltas, finish=finish)

    def refuse(self, status: int, **error: Any) -> None:
        """Answer with an error object."""
        self.status, self.body = status, {"error": {"message": "no", "type": "error", **error}}


class Server(ThreadingHTTPServer):
    """A server that keeps quiet about clients that hang up."""

    def handle_error(self, request: Any, client_address: Any) -> None:
        del request, client_address


USAGE = {
    "prompt_tokens": 50,
    "completion_tokens": 7,
    "total_tokens": 57,
    "prompt_tokens_details": {"cached_tokens": 20},
}


def chunk(delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "gpt-x",
        "choices": [{"index": 0, "delta": delta, "finish_reason": finish}],
    }


def tool_delta(index: int, arguments: str, **first: str) -> dict[str, Any]:
    function: dict[str, Any] = {"arguments": arguments}
    call: dict[str, Any] = {"index": index, "function": function}
    if first:
        function["name"] = first["name"]
        call |= {"id": first["id"], "type": "function"}
    return {"tool_calls": [call]}


def streamed(*deltas: dict[str, Any], finish: str = "stop") -> list[dict[str, Any]]:
    """One answer in pieces."""
    return [
        *(chunk(delta) for delta in deltas),
        chunk({}, finish),
        {**chunk({}), "choices": [], "usage": USAGE},
    ]


@contextmanager
def provider_wire() -> Iterator[Wire]:
    """A running stub."""
    state = Wire()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:  # the name http.server calls
            length = int(self.headers["content-length"])
            state.requests.append(json.loads(self.rfile.read(length)))
            state.keys.append(self.headers["authorization"])
            self.send_response(state.status)
            streams = state.status == 200
            self.send_header("content-type", "text/event-stream" if streams else "application/json")
            for name, value in state.headers.items():
                self.send_header(name, value)
            self.end_headers()
            if not streams:
                self.wfile.write(json.dumps(state.body).encode())
                return
            for item in state.turns.pop(0) if state.turns else state.chunks:
                event = f"event: {item['type']}\n" if "type" in item else ""
                self.wfile.write(f"{event}data: {json.dumps(item)}\n\n".encode())
                self.wfile.flush()
            if state.cut_off:
                self.wfile.write(b'data: {"id": "chat')
                return
            self.wfile.write(b"data: [DONE]\n\n")

        def log_message(self, *args: Any) -> None:
            del args

    server = Server(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    state.url = f"http://127.0.0.1:{server.server_port}/v1"
    try:
        yield state
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
