"""docs/dead_letters.md, the service: failures that come later and records that `send` refuses become dead letters."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from fastapi.testclient import TestClient

from aiokprod.testing import MockCluster
from aiokprod.testing.faults.rules import Rule

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "dead_letters.md").read_text(encoding="utf-8")
FILES = dict(re.findall(r"<!-- file: (\w+)\.py -->\n```python\n(.*?)```", PAGE, re.DOTALL))
[LARGEST] = re.findall(r"^aiokprod topics create orders\.dead .*--option max\.message\.bytes=(\d+)", PAGE, re.MULTILINE)


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[MockCluster]:
    for name in [name for name in os.environ if name.startswith("AIOKPROD_")]:
        monkeypatch.delenv(name)
    with MockCluster(brokers=1) as started:
        started.create_topic("orders", partitions=1, max_message_bytes=10_000)
        started.create_topic("orders.dead", partitions=1, max_message_bytes=int(LARGEST))
        monkeypatch.setenv("AIOKPROD_BOOTSTRAP_SERVERS", started.bootstrap_servers)
        yield started


@pytest.fixture
def app(cluster: MockCluster, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Return the file app.py of the page, which imports the other one."""
    for name in ("dead_letters", "app"):
        module = ModuleType(name)
        monkeypatch.setitem(sys.modules, name, module)
        exec(compile(FILES[name], f"docs/dead_letters.md, {name}.py", "exec"), module.__dict__)
    return sys.modules["app"]


def letters(cluster: MockCluster) -> list[tuple[int, str, str]]:
    """Return the length, key and error of each dead letter."""
    found = []
    for record in cluster.records("orders.dead"):
        error = dict(record.headers)["dead.error"]
        found.append((len(record.value or b""), (record.key or b"").decode(), (error or b"").decode()))
    return found


def test_an_order_is_sent_as_json(app: ModuleType, cluster: MockCluster) -> None:
    with TestClient(app.app) as client:
        assert client.post("/orders", json={"id": "a", "note": "soon"}).status_code == 202
    (record,) = cluster.records("orders")
    assert (record.key, record.value) == (b"a", b'{"id":"a","note":"soon"}')
    assert letters(cluster) == []


def test_an_order_that_fails_later_becomes_a_dead_letter(app: ModuleType, cluster: MockCluster) -> None:
    with TestClient(app.app) as client:
        assert client.post("/orders", json={"id": "b", "note": "L" * 20_000}).status_code == 202
    assert letters(cluster) == [(20_000 + len('{"id":"b","note":""}'), "b", "RecordTooLargeError")]
    assert cluster.records("orders") == []


def test_an_order_that_send_refuses_becomes_a_dead_letter(app: ModuleType, cluster: MockCluster) -> None:
    with TestClient(app.app) as client:
        assert client.post("/orders", json={"id": "c", "note": "L" * 1_500_000}).status_code == 202
    assert letters(cluster) == [(1_500_000 + len('{"id":"c","note":""}'), "c", "RecordTooLargeError")]


def test_an_order_that_is_too_large_for_a_dead_letter_is_refused(app: ModuleType, cluster: MockCluster) -> None:
    with TestClient(app.app) as client:
        assert client.post("/orders", json={"id": "d", "note": "L" * 2_500_000}).status_code == 413
    assert letters(cluster) == []


def test_a_dead_letter_that_its_topic_refuses_is_only_logged(
    app: ModuleType, cluster: MockCluster, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.alter_topic("orders.dead", max_message_bytes=1_048_588)  # Kafka's default
    with TestClient(app.app) as client:
        assert client.post("/orders", json={"id": "e", "note": "L" * 1_500_000}).status_code == 202
    assert letters(cluster) == []
    assert "MESSAGE_TOO_LARGE" in caplog.text


@pytest.fixture
def refusing(cluster: MockCluster, monkeypatch: pytest.MonkeyPatch) -> Rule:
    """Let the buffers hold two large orders, which are not delivered before the rule is cancelled."""
    monkeypatch.setenv("AIOKPROD_BUFFER_MEMORY", "2100000")
    monkeypatch.setenv("AIOKPROD_MAX_WAITING_BYTES", "500000")
    cluster.alter_topic("orders", max_message_bytes=2_000_000)
    return cluster.fail_next("Produce", "NOT_ENOUGH_REPLICAS", topic="orders", times=None)


def test_an_order_for_which_there_is_no_room_is_answered_with_503_and_is_no_dead_letter(
    cluster: MockCluster, refusing: Rule, request: pytest.FixtureRequest
) -> None:
    app: ModuleType = request.getfixturevalue("app")  # it reads the environment that `refusing` has set
    with TestClient(app.app) as client:
        statuses = [client.post("/orders", json={"id": "f", "note": "L" * 900_000}).status_code for _ in range(4)]
        refusing.cancel()
    assert statuses == [202, 202, 503, 503]
    assert (len(cluster.records("orders")), letters(cluster)) == (2, [])
