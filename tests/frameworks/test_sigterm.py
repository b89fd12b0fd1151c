"""SIGTERM to a server: what its application sent right before is in the log, and the process ends within the bound."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from aiokprod.testing import MockCluster

HERE = Path(__file__).parent
PATIENCE_S = 60.0  # for the start of an interpreter and a server on a busy machine
MARGIN_S = 20.0  # above the bound of close(): the server's own end, on a busy machine
ENDED_BY_SIGTERM = (0, -signal.SIGTERM)  # uvicorn raises the signal again when it is done

GUNICORN = ["-m", "gunicorn", "served_app:app", "-b", "fd://{fd}", "--graceful-timeout", "60"]
SERVERS = {
    "uvicorn": ["-m", "uvicorn", "served_app:app", "--fd", "{fd}", "--no-access-log"],
    "uvicorn on uvloop": ["-m", "uvicorn", "served_app:app", "--fd", "{fd}", "--no-access-log", "--loop", "uvloop"],
    "gunicorn": [*GUNICORN, "-k", "asgi"],
    "gunicorn preloaded, two workers": [*GUNICORN, "-k", "asgi", "--preload", "--workers", "2"],
    "gunicorn with uvicorn's worker": [*GUNICORN, "-k", "uvicorn_worker.UvicornWorker"],
    "aiohttp": ["served_app.py", "{fd}"],
}


@dataclass(slots=True)
class Served:
    """A server in a process of its own, and how it ended."""

    process: subprocess.Popen[bytes]
    port: int
    log: Path

    def post(self, path: str) -> dict[str, int]:
        """Send a request; its connection waits in the backlog until the server is up."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)
        try:
            connection.request("POST", path, headers={"Connection": "close"})
            answer = connection.getresponse()
            assert answer.status == 200, answer.read()
            return dict(json.loads(answer.read()))
        finally:
            connection.close()

    @property
    def said(self) -> str:
        return self.log.read_text()

    def until_said(self, text: str, times: int) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while self.said.count(text) < times:
            assert time.monotonic() < deadline and self.process.poll() is None, self.said
            time.sleep(0.02)

    def end(self, within_s: float) -> int:
        """Send SIGTERM; return the exit code, or raise subprocess.TimeoutExpired."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(within_s)


@pytest.fixture
def cluster() -> Iterator[MockCluster]:
    with MockCluster() as started:
        started.create_topic("orders")
        yield started


@contextmanager
def served(server: str, cluster: MockCluster, log: Path, **settings: object) -> Iterator[Served]:
    environment = os.environ | {"SERVED_APP_BOOTSTRAP": cluster.bootstrap_servers, "PYTHONUNBUFFERED": "1"}
    environment["HOME"] = str(log.parent)  # gunicorn keeps a control socket there
    environment |= {f"SERVED_APP_{name.upper()}": str(value) for name, value in settings.items()}
    with socket.create_server(("127.0.0.1", 0)) as listener, log.open("wb") as said:
        fd = listener.fileno()
        command = [sys.executable, *(part.format(fd=fd) for part in SERVERS[server])]
        process = subprocess.Popen(
            command, cwd=HERE, env=environment, pass_fds=[fd], stdout=said, stderr=said, start_new_session=True
        )
        running = Served(process, listener.getsockname()[1], log)
        listener.close()  # it is the server's alone: if that dies, a request fails at once
        try:
            if "two workers" in server:  # gunicorn loses the SIGTERM of a worker that has just been forked
                running.until_said("ASGI server listening", 2)
            yield running
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            print(running.said)


def numbers(cluster: MockCluster) -> list[int]:
    return [int(record.value or b"-1") for record in cluster.records("orders")]


@pytest.mark.slow_after(2)
@pytest.mark.parametrize("server", list(SERVERS))
@pytest.mark.parametrize("linger_ms", [0, 600_000], ids=["on their way", "lingering"])
def test_what_was_sent_right_before_sigterm_is_in_the_log(
    cluster: MockCluster, tmp_path: Path, server: str, linger_ms: int
) -> None:
    """With a linger of ten minutes only close() can have sent them."""
    with served(server, cluster, tmp_path / "log", linger_ms=linger_ms) as running:
        senders = {running.post(f"/orders/{first}/500")["pid"] for first in range(0, 2_000, 500)}
        code = running.end(within_s=30.0 + MARGIN_S)
    assert code in ENDED_BY_SIGTERM, running.said
    assert "Traceback" not in running.said
    assert "never" not in running.said  # never awaited, never retrieved
    found = numbers(cluster)
    assert sorted(found) == list(range(2_000)), running.said
    if len(senders) == 1:
        assert found == list(range(2_000))
    assert "undelivered: 0" in running.said


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("server", list(SERVERS))
def test_a_cluster_that_does_not_answer_cannot_keep_the_process(
    cluster: MockCluster, tmp_path: Path, server: str
) -> None:
    with served(server, cluster, tmp_path / "log", linger_ms=0, close_s=2) as running:
        cluster.hold("Produce")
        running.post("/orders/0/10")
        code = running.end(within_s=2.0 + MARGIN_S)
    assert code in ENDED_BY_SIGTERM, running.said
    assert "undelivered: 10" in running.said
