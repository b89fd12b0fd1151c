"""A schema registry over HTTP on the loopback: what clients of Confluent's ask for when they write and read.

with FakeRegistry() as registry:
    registry.url
"""

from __future__ import annotations

import base64
import json
import ssl
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self
from urllib.parse import unquote, urlsplit
from uuid import UUID


class FakeRegistry:
    """The registry; `requests` are "METHOD path" in their order, `refusals` what it answers to paths instead."""

    def __init__(self, *, user_info: str | None = None, tls: ssl.SSLContext | None = None, guids: bool = True) -> None:
        self.schemas: list[dict[str, Any]] = []
        self.subjects: dict[str, list[int]] = {}
        self.requests: list[str] = []
        self.refusals: dict[str, tuple[int, Any]] = {}
        self._user_info = user_info
        self._guids = guids
        self._scheme = "http" if tls is None else "https"
        registry = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, format: str, *args: Any) -> None:
                """Say nothing."""

            def answer(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                path = urlsplit(self.path).path
                status, found = registry.answer(self.command, path, body, self.headers.get("Authorization"))
                data = found if isinstance(found, bytes) else json.dumps(found).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            do_GET = do_POST = answer

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        if tls is not None:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)

    @property
    def url(self) -> str:
        return f"{self._scheme}://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def add(self, subject: str, schema: str, kind: str = "AVRO", **more: Any) -> int:
        """Register a schema, as another program does; return its id."""
        return int(self._register(subject, {"schema": schema, "schemaType": kind, **more})["id"])

    def answer(self, method: str, path: str, body: bytes, user: str | None) -> tuple[int, Any]:
        self.requests.append(f"{method} {path}")
        if self._user_info is not None:
            if user != "Basic " + base64.b64encode(self._user_info.encode()).decode():
                return 401, {"error_code": 401, "message": "Unauthorized"}
        for beginning, refusal in self.refusals.items():
            if path.startswith(beginning):
                return refusal
        match [method, *(unquote(part) for part in path.strip("/").split("/"))]:
            case ["POST", "subjects", subject, "versions"]:
                return 200, self._register(subject, json.loads(body))
            case ["POST", "subjects", subject]:
                return self._look_up(subject, json.loads(body))
            case ["GET", "subjects", subject, "versions", version]:
                ids = self.subjects.get(subject)
                if not ids:
                    return 404, {"error_code": 40401, "message": f"Subject '{subject}' not found."}
                return 200, self._told(subject, ids[-1] if version == "latest" else ids[int(version) - 1])
            case ["GET", "schemas", "ids", number] if 0 < int(number) <= len(self.schemas):
                return 200, self._schema(int(number))
            case ["GET", "schemas", "guids", guid] if 0 < UUID(guid).int <= len(self.schemas):
                return 200, self._schema(UUID(guid).int)
        return 404, {"error_code": 40403, "message": "Schema not found"}

    def _schema(self, number: int) -> dict[str, Any]:
        guid = {"guid": str(UUID(int=number))} if self._guids else {}
        return {**self.schemas[number - 1], **guid}

    def _told(self, subject: str, number: int) -> dict[str, Any]:
        version = self.subjects[subject].index(number) + 1
        return {**self._schema(number), "id": number, "subject": subject, "version": version}

    def _register(self, subject: str, asked: dict[str, Any]) -> dict[str, Any]:
        kept = {"schema": asked["schema"], "schemaType": asked.get("schemaType") or "AVRO"}
        if asked.get("references"):
            kept["references"] = asked["references"]
        if kept not in self.schemas:
            self.schemas.append(kept)
        number = self.schemas.index(kept) + 1
        ids = self.subjects.setdefault(subject, [])
        if number not in ids:
            ids.append(number)
        return self._told(subject, number)

    def _look_up(self, subject: str, asked: dict[str, Any]) -> tuple[int, Any]:
        if subject not in self.subjects:
            return 404, {"error_code": 40401, "message": f"Subject '{subject}' not found."}
        for number in self.subjects[subject]:
            if self.schemas[number - 1]["schema"] == asked["schema"]:
                return 200, self._told(subject, number)
        return 404, {"error_code": 40403, "message": "Schema not found"}
