"""For every test of a framework: what a framework sets up for the whole process is taken back."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def root_logger_as_before() -> Iterator[None]:
    """Restore the root logger: Litestar configures it, and its level would hold for every later test of the process."""
    root = logging.getLogger()
    level, handlers = root.level, root.handlers[:]
    yield
    root.setLevel(level)
    root.handlers[:] = handlers
