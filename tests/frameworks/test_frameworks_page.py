"""docs/frameworks.md is run against a mock cluster: the files of FastAPI are a folder; another section is one module."""

from __future__ import annotations

import asyncio
import importlib
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from aiohttp.test_utils import TestClient as AiohttpClient
from aiohttp.test_utils import TestServer
from litestar.testing import TestClient as LitestarClient
from starlette.testclient import TestClient

from aiokprod.testing import MockCluster

PAGE = Path(__file__).resolve().parents[2] / "docs" / "frameworks.md"
FILES = dict(re.findall(r"<!-- file: (\w+\.py) -->\n```python\n(.*?)```", PAGE.read_text(), re.DOTALL))
TOPICS = ("orders", "clicks", "reports", "events", "audit")


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[MockCluster]:
    """Yield a cluster that `ProducerConfig.from_env` finds."""
    for name in [name for name in os.environ if name.startswith("AIOKPROD_")]:
        monkeypatch.delenv(name)  # those of the test run itself are no options of a producer
    with MockCluster() as started:
        for topic in TOPICS:
            started.create_topic(topic, partitions=1)
        monkeypatch.setenv("AIOKPROD_BOOTSTRAP_SERVERS", started.bootstrap_servers)
        yield started


def program_lines(title: str | None) -> str:
    """Return the page with all but its programs (of one section) blank, so that tracebacks show the page's line numbers."""
    lines, heading, is_program = [], None, False
    for line in PAGE.read_text().splitlines():
        if line.startswith("## ") and not is_program:
            heading = line.removeprefix("## ")
        is_fence = line.startswith("```")
        if is_fence:
            is_program = line == "```python"
        lines.append(line if is_program and not is_fence and title in (None, heading) else "")
    return "\n".join(lines)


@pytest.fixture
def program(request: pytest.FixtureRequest, cluster: MockCluster, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Return the section that the test's parameter names, imported."""
    title: str = request.param
    module = ModuleType(f"page_{title.lower()}")
    monkeypatch.setitem(sys.modules, module.__name__, module)  # dataclasses and pydantic look names up there
    exec(compile(program_lines(title), PAGE, "exec"), module.__dict__)
    return module


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder that has the files of the page."""
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    return tmp_path


def imported(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Import a file of the page with what it imports."""
    monkeypatch.syspath_prepend(folder)
    for each in FILES:
        monkeypatch.delitem(sys.modules, each.removesuffix(".py"), raising=False)
    return importlib.import_module(name)


@pytest.fixture
def main(folder: Path, cluster: MockCluster, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Return the file main.py of the page."""
    return imported("main", folder, monkeypatch)


def values(cluster: MockCluster, topic: str) -> list[bytes | None]:
    return [record.value for record in cluster.records(topic)]


def test_the_fastapi_program_sends_waits_and_tells_its_health(main: ModuleType, cluster: MockCluster) -> None:
    for round_number in range(2):
        with TestClient(main.app) as client:
            answer = client.post("/orders", json={"id": "a", "amount": round_number})
            assert (answer.status_code, answer.json()) == (201, {"partition": 0, "offset": round_number})
            assert client.post("/clicks").status_code == 202
            assert client.post("/reports").json() == {"offset": round_number}
            answer = client.get("/health/ready")
            assert (answer.status_code, answer.json()["state"]) == (200, "READY")
            assert client.get("/health/live").status_code == 200
    assert values(cluster, "orders") == [b'{"id":"a","amount":0}', b'{"id":"a","amount":1}']
    assert values(cluster, "clicks") == [b"clicked", b"clicked"]


def test_the_tests_on_the_page_pass_without_an_address_of_a_cluster(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in os.environ if name.startswith("AIOKPROD_")]:
        monkeypatch.delenv(name)
    tests = imported("test_app", folder, monkeypatch)
    tests.test_an_order_is_sent()
    tests.test_an_order_that_cannot_be_sent_is_our_failure()


@pytest.mark.parametrize("program", ["Starlette"], indirect=True)
def test_the_starlette_program_sends_at_startup_in_requests_and_at_shutdown(
    program: ModuleType, cluster: MockCluster
) -> None:
    for round_number in range(2):
        with TestClient(program.app) as client:
            answer = client.post("/orders", content=b"%d" % round_number)
            assert (answer.status_code, answer.json()) == (201, {"greeting": "hello", "offset": round_number})
            with client.websocket_connect("/clicks") as websocket:
                websocket.send_text("one")
                websocket.send_text("two")
    assert values(cluster, "orders") == [b"0", b"1"]
    assert values(cluster, "clicks") == [b"one", b"two"] * 2
    assert values(cluster, "events") == [b"started", b"stopped"] * 2


@pytest.mark.parametrize("program", ["Starlette"], indirect=True)
def test_two_producers_are_two_names_in_one_state(program: ModuleType, cluster: MockCluster) -> None:
    with TestClient(program.two) as client:
        assert client.post("/orders", content=b"v").json() == {"offset": 0}
    assert (values(cluster, "audit"), values(cluster, "orders")) == ([b"asked"], [b"v"])
    assert len({seen.client_id for seen in cluster.requests("Produce")}) == 2


@pytest.mark.parametrize("program", ["aiohttp"], indirect=True)
def test_the_aiohttp_program_sends_from_the_application_and_its_part(program: ModuleType, cluster: MockCluster) -> None:
    async def scenario() -> None:
        async with AiohttpClient(TestServer(program.make_app())) as client:
            answer = await client.post("/orders", data=b"one")
            assert (answer.status, await answer.json()) == (201, {"offset": 0})
            assert (await client.post("/shop/orders", data=b"two")).status == 202

    asyncio.run(scenario())
    assert values(cluster, "orders") == [b"one", b"two"]


@pytest.mark.parametrize("program", ["Litestar"], indirect=True)
def test_the_litestar_program_sends_and_may_be_run_twice(program: ModuleType, cluster: MockCluster) -> None:
    for round_number in range(2):
        with LitestarClient(program.app) as client:
            answer = client.post("/orders", json={"id": "a", "amount": round_number})
            assert (answer.status_code, answer.json()) == (201, {"partition": 0, "offset": round_number})
    assert values(cluster, "orders") == [b"0", b"1"]


def test_every_program_of_the_page_belongs_to_a_section_that_is_run() -> None:
    run = [program_lines(title).splitlines() for title in ("FastAPI", "Starlette", "aiohttp", "Litestar")]
    assert ["".join(lines) for lines in zip(*run, strict=True)] == program_lines(None).splitlines()
    of_files = [line for text in FILES.values() for line in text.splitlines() if line]
    assert of_files == [line for line in program_lines("FastAPI").splitlines() if line]
