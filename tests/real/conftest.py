"""What the tests against a real cluster share."""

from __future__ import annotations

import uuid

import pytest


@pytest.fixture
def kafka_name() -> str:
    """A topic name that no other test has."""
    return f"test-{uuid.uuid4().hex[:12]}"
