"""For every test: which event loop, and a clear word about what needs an engine that is not there."""

from __future__ import annotations

import asyncio
import os

if os.environ.get("AIOKPROD_TEST_UVLOOP"):
    import uvloop

    asyncio.set_event_loop_policy(uvloop.EventLoopPolicy())


def pytest_report_header() -> str:
    return f"event loop: {type(asyncio.get_event_loop_policy()).__module__}"
