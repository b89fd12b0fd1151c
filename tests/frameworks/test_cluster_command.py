"""`aiokprod cluster -- uvicorn app:app`, as the README says it: a service, its cluster, one command."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

PATIENCE_S = 60.0
APP = """
from contextlib import asynccontextmanager

from fastapi import FastAPI

from aiokprod import Producer, ProducerConfig


@asynccontextmanager
async def lifespan(app):
    async with Producer(ProducerConfig.from_env()) as app.state.producer:
        yield


app = FastAPI(lifespan=lifespan)


@app.post("/orders/{number}")
async def order(number: int):
    metadata = await app.state.producer.send("orders", b"%d" % number)
    return {"offset": metadata.offset}
"""


def post(port: int, path: str) -> object:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
    try:
        connection.request("POST", path)
        return json.loads(connection.getresponse().read())
    finally:
        connection.close()


def port_of(log: Path, process: subprocess.Popen[bytes]) -> int:
    """Return the port of the server, once it says that it runs."""
    deadline = time.monotonic() + PATIENCE_S
    while (found := re.search(r"Uvicorn running on http://127\.0\.0\.1:(\d+)", log.read_text())) is None:
        assert time.monotonic() < deadline and process.poll() is None, log.read_text()
        time.sleep(0.02)
    return int(found[1])


def test_uvicorn_serves_an_app_that_finds_its_cluster(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(APP)
    log = tmp_path / "log"
    scripts = Path(sys.executable).parent
    with log.open("wb") as output:
        process = subprocess.Popen(
            [
                scripts / "aiokprod",
                "cluster",
                "--port",
                "0",
                "--topic",
                "orders",
                "--",
                "uvicorn",
                "app:app",
                "--port",
                "0",
            ],
            cwd=tmp_path,
            env=os.environ | {"PATH": f"{scripts}{os.pathsep}{os.environ['PATH']}"},
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        port = port_of(log, process)
        assert [post(port, f"/orders/{number}") for number in range(3)] == [{"offset": number} for number in range(3)]
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) in (0, 128 + signal.SIGTERM), log.read_text()
        assert "Application shutdown complete" in log.read_text()
    finally:
        process.kill()
        process.wait()
