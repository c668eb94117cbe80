"""A schema registry on the loopback for tests: says what it is told to say, and notes what it was asked."""

import json
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from attrs import define, field


@define(eq=False)
class RegistryServer:
    """Answers by path: ``(status, body)``, or what returns that, or a list of them to be given one after the other.

    The last one of a list is given again and again.
    """

    url: str = ""
    answers: dict[str, Any] = field(factory=dict)
    asked: list[str] = field(factory=list)
    authorization: list[str | None] = field(factory=list)
    headers: list[Message] = field(factory=list)

    @property
    def asked_for(self) -> list[str]:
        """The paths of what was asked for, without lists of a subject's versions."""
        return [path for path in self.asked if not path.endswith("/versions")]

    def put(self, path: str, schema: Any, **more: Any) -> None:
        """Have a schema at a path."""
        self.answers[path] = (200, json.dumps({"schema": json.dumps(schema), **more}).encode())

    def answer(self, path: str) -> tuple[int, bytes]:
        without = path.replace("?deleted=true", "").replace("&deleted=true", "")  # such a request finds those that are there, too
        found: Any = self.answers.get(path, self.answers.get(without, (404, b'{"error_code":40403}')))
        if isinstance(found, list):
            found = found.pop(0) if len(found) > 1 else found[0]
        status, body = found() if callable(found) else found
        return status, body


@contextmanager
def registry_server(tls: ssl.SSLContext | None = None) -> Iterator[RegistryServer]:
    """Serve while the block lasts; whatever host a request names, as a proxy does."""
    state = RegistryServer()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:  # the name that http.server calls
            state.asked.append(self.path)
            state.authorization.append(self.headers["Authorization"])
            state.headers.append(self.headers)
            status, body = state.answer(self.path)
            self.send_response(status)
            self.send_header("Location", state.url + "/elsewhere")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.do_GET()

        def log_message(self, format: str, *arguments: Any) -> None:  # the name that http.server has
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        if tls is not None:
            server.socket = tls.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        state.url = f"{'http' if tls is None else 'https'}://127.0.0.1:{server.server_port}"
        try:
            yield state
        finally:
            server.shutdown()
            thread.join()
