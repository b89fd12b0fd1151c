"""An application of a page under gunicorn, in processes of its own."""

from __future__ import annotations

import http.client
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_S = 60.0


class Served:
    """Gunicorn in a folder that has the application and `gunicorn.conf.py`; it listens on a free port.

    Args:
        folder: also has the log.
        application: `module:name`.
        environment: variables besides those of this process.
    """

    def __init__(self, folder: Path, application: str, environment: Mapping[str, str]) -> None:
        environment = os.environ | environment
        environment |= {
            "HOME": str(folder),
            "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]),
        }
        self.log = folder / "log"
        with socket.create_server(("127.0.0.1", 0)) as listener, self.log.open("wb") as said:
            self.port = listener.getsockname()[1]
            command = [sys.executable, "-m", "gunicorn", application, "-b", f"fd://{listener.fileno()}"]
            self.process = subprocess.Popen(
                command, cwd=folder, env=environment, pass_fds=[listener.fileno()], stdout=said, stderr=said,
                start_new_session=True,
            )  # fmt: skip

    def until(self, condition: Any) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            assert time.monotonic() < deadline and self.process.poll() is None, self.log.read_text()
            time.sleep(0.02)

    def until_logged(self, text: str, times: int) -> None:
        self.until(lambda: self.log.read_text().count(text) == times)

    def ask(self, method: str, path: str, body: bytes | None = None, status: int = 200) -> str:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)
        try:
            connection.request(method, path, body, headers={"Connection": "close"})
            answer = connection.getresponse()
            text = answer.read().decode()
            assert answer.status == status, text
            return text
        finally:
            connection.close()

    def end(self) -> None:
        """Stop it as a platform does; it ends by itself and without a traceback."""
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(PATIENCE_S) == 0
        assert "Traceback" not in self.log.read_text()

    def kill(self) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
