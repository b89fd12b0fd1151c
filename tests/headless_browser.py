"""A headless Chromium, driven over its DevTools protocol: pages, widths, colour schemes, scripts, screenshots."""

from __future__ import annotations

import asyncio
import base64
import os
import re
import shutil
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import aiohttp

NAMES: Final = ("chromium", "chromium-browser", "google-chrome")
REQUIRED: Final = "AIOKPROD_REQUIRE_BROWSER"
ANSWER_LIMIT_S: Final = 60.0
START_LIMIT_S: Final = 90.0


def executable() -> str | None:
    """Return the path of a browser, or None. With AIOKPROD_REQUIRE_BROWSER a missing one is an error.

    Raises:
        RuntimeError: a browser is required, and there is none.
    """
    found = next(filter(None, map(shutil.which, NAMES)), None)
    if found is None and os.environ.get(REQUIRED):
        raise RuntimeError(f"{REQUIRED} is set, and none of {', '.join(NAMES)} is there: apt-get install chromium")
    return found


class Tab:
    """One tab of the browser."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._last = 0

    async def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Call a method of the DevTools protocol; events that come before its answer are dropped.

        Raises:
            RuntimeError: the browser answers with an error.
        """
        self._last += 1
        await self._socket.send_json({"id": self._last, "method": method, "params": parameters})
        async with asyncio.timeout(ANSWER_LIMIT_S):
            while True:
                answer: dict[str, Any] = await self._socket.receive_json()
                if answer.get("id") == self._last:
                    break
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']}")
        result: dict[str, Any] = answer["result"]
        return result

    async def open(self, address: str) -> None:
        """Open an address and wait until the page and its images are loaded."""
        await self.call("Page.navigate", url=address)
        await self.evaluate(
            "new Promise(done => { const look = () => document.readyState === 'complete' && location.href === "
            f"{address!r} ? done(true) : setTimeout(look, 10); look(); }})"
        )

    async def evaluate(self, script: str) -> Any:
        """Return the value of a script, awaited if it is a promise.

        Raises:
            RuntimeError: the script raises.
        """
        answer = await self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(f"{script}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    async def look(self, width: int, scheme: str) -> None:
        """Set the width of the window, and whether the user prefers light or dark."""
        await self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False
        )
        await self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    async def screenshot(self, path: Path) -> None:
        """Write what is seen as a PNG."""
        answer = await self.call("Page.captureScreenshot", format="png")
        path.write_bytes(base64.b64decode(answer["data"]))


@asynccontextmanager
async def browser(path: str) -> AsyncIterator[Tab]:
    """Start a browser and yield its tab."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        options = ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run")
        process = await asyncio.create_subprocess_exec(
            path, *options, "--remote-debugging-port=0", f"--user-data-dir={profile}", "about:blank",
            stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        assert process.stderr is not None
        drained: asyncio.Task[bytes] | None = None
        try:
            async with asyncio.timeout(START_LIMIT_S):
                port = ""
                while not port:
                    line = (await process.stderr.readline()).decode()
                    assert line, "the browser has ended"
                    port = "".join(re.findall(r"DevTools listening on ws://[^:]+:(\d+)/", line))
            drained = asyncio.create_task(process.stderr.read())
            async with aiohttp.ClientSession() as session:
                async with session.get(f"http://127.0.0.1:{port}/json/list") as listed:
                    (target, *_) = [each for each in await listed.json() if each["type"] == "page"]
                async with session.ws_connect(target["webSocketDebuggerUrl"], max_msg_size=0) as socket:
                    yield Tab(socket)
        finally:
            process.kill()
            await process.wait()
            if drained is not None:
                await drained
