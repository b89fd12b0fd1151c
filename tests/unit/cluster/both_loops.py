"""Run a scenario on asyncio's own loop and on uvloop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
import uvloop

Run = Callable[[Coroutine[Any, Any, None]], None]

both_loops = pytest.mark.parametrize(
    "run",
    [pytest.param(asyncio.run, id="asyncio"), pytest.param(uvloop.run, id="uvloop", marks=pytest.mark.slow)],
)
