"""Fixtures of the tests against a real cluster."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import cast

import pytest
from kafka_versions import is_left_out, versions_for


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    return True if is_left_out(collection_path.name) else None


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "kafka_version" in metafunc.fixturenames:
        versions = versions_for(metafunc.function.__name__)
        metafunc.parametrize("kafka_version", versions, indirect=True, scope="module")


@pytest.fixture(scope="module")
def kafka_version(request: pytest.FixtureRequest) -> str:
    """Return the release of the module's cluster: `kafka_versions.py`."""
    return cast("str", request.param)


@pytest.fixture
def kafka_name() -> str:
    """Return a topic name that no other test has."""
    return f"test-{uuid.uuid4().hex[:12]}"
