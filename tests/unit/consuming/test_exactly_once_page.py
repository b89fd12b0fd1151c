"""docs/exactly_once.md: its programs run, and its table is the one of the code. FastAPI: tests/frameworks."""

from __future__ import annotations

import asyncio
import re
import sqlite3
import subprocess
import sys
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from child_process import Child
from consuming_rig import Rig, run
from fake_group import AiokafkaMember, ConfluentMember

import aiokprod.errors
from aiokprod import Producer
from aiokprod.consuming.outcomes import TABLE, Outcome, Step
from aiokprod.testing import MockCluster

FILE = Path(__file__).resolve().parents[3] / "docs" / "exactly_once.md"
PAGE = FILE.read_text(encoding="utf-8")


def program(title: str, language: str = "python", number: int = 0) -> str:
    section = re.split(r"^## ", PAGE, flags=re.MULTILINE)
    (text,) = [text for text in section if text.startswith(title + "\n")]
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)[number]


def names_of(title: str) -> dict[str, Any]:
    names: dict[str, Any] = {"__name__": "page"}
    exec(compile(program(title), FILE.name, "exec"), names)
    return names


def test_the_table_is_the_one_of_the_code() -> None:
    rows = re.findall(r"^\| ([^|]+) \| ([^|]+) \| ([^|]+) \| ([^|]+) \|$", PAGE, re.MULTILINE)
    shown = {row[0]: row[1:] for row in rows if row[0] in {outcome.value for outcome in Outcome}}
    assert shown == {
        outcome.value: tuple(TABLE[step, outcome].value for step in (Step.OFFSETS, Step.COMMIT, Step.ABORT))
        for outcome in Outcome
    }


def test_what_the_page_names_is_there() -> None:
    for name in re.findall(r"`(\w+Error)`", PAGE):
        assert hasattr(aiokprod.errors, name)
    for path in re.findall(r"`(tests/\S+\.py)`|python (bench/\S+\.py)", PAGE):
        assert (FILE.parents[1] / "".join(path)).exists()


# ---------------------------------------------------------------------- from Kafka to Kafka
class Shown:
    """A consumer of the page: a fake one, which notes the options that the page gives."""

    def __init__(self, rig: Rig, shape: Any) -> None:
        self.options: dict[str, Any] = {}
        self.member: Any = None
        self._rig, self._shape = rig, shape

    def __call__(self, *topics: Any, **options: Any) -> Any:
        self.options = dict(topics[0]) if topics and isinstance(topics[0], dict) else options
        known = {"group_id", "enable_auto_commit", "isolation_level"} if self._shape is AiokafkaMember else set()
        member = self._shape(self._rig.group, **{name: options[name] for name in known & set(options)})
        member._group_id = "g"

        class OfThePage(type(member)):  # type: ignore[misc]
            async def __aenter__(it: Any) -> Any:
                self._rig.group.join(it)
                return it

            async def __aexit__(it: Any, *_: object) -> None:
                await it.stop()

            def subscribe(it: Any, topics: list[str]) -> None:
                assert topics == ["in"]
                self._rig.group.join(it)

            def close(it: Any) -> None:
                self._rig.group.leave(it)

        member.__class__ = OfThePage
        self.member = member
        return member


@pytest.mark.parametrize(
    ("title", "shape", "options"),
    [
        (
            "From Kafka to Kafka with aiokafka",
            AiokafkaMember,
            {"group_id": "copy", "isolation_level": "read_committed"},
        ),
        (
            "From Kafka to Kafka with confluent-kafka",
            ConfluentMember,
            {"group.id": "copy", "enable.auto.commit": False},
        ),
    ],
    ids=["aiokafka", "confluent"],
)
def test_the_programs_copy(title: str, shape: Any, options: dict[str, Any]) -> None:
    pytest.importorskip("aiokafka")
    pytest.importorskip("confluent_kafka")

    async def scenario(rig: Rig) -> None:
        names = names_of(title)
        names["AIOKafkaConsumer"] = names["Consumer"] = shown = Shown(rig, shape)
        names["Producer"] = lambda servers, **more: Producer(servers, dialer=rig.network.dial, **more)
        copying = asyncio.create_task(names["copy"](rig.cluster.bootstrap_servers, 0))
        while len(await rig.output()) < 20 and not copying.done():
            pass
        copying.cancel()
        with pytest.raises(asyncio.CancelledError):
            await copying
        assert await rig.output() == [value.upper() for value in rig.group.input]
        assert options.items() <= shown.options.items()

    run(scenario)


def test_the_program_that_awaits_what_it_sends_goes_on_after_an_error_that_passes() -> None:
    names = names_of("What follows which outcome")

    async def scenario(rig: Rig) -> None:
        consumer = rig.member()
        rig.cluster.fail_next("Produce", "TRANSACTION_ABORTABLE")
        async with rig.producer() as producer:
            copying = asyncio.create_task(names["copy_and_wait"](consumer, producer))
            while len(await rig.output()) < 20 and not copying.done():
                pass
            copying.cancel()
            with pytest.raises(asyncio.CancelledError):
                await copying
        assert await rig.output() == rig.group.input
        await consumer.stop()

    run(scenario)


# ---------------------------------------------------------------------- the outbox
CHILD = """
import asyncio, sys
names = {"__name__": "page"}
exec(compile(open(sys.argv[1]).read(), "page", "exec"), names)
rows_after = names["rows_after"]

def few(path, position, limit=7):
    print("batch", flush=True)
    return rows_after(path, position, limit)

names["rows_after"] = few
asyncio.run(names["run"](sys.argv[2], sys.argv[3]))
"""
ROWS = 200


@pytest.fixture
def outbox(tmp_path: Path) -> Path:
    path = tmp_path / "orders.db"
    with closing(sqlite3.connect(path)) as database:
        database.execute(program("An outbox in SQLite", "sql"))
        with database:
            rows = [("orders" if number % 2 else "invoices", b"%d" % number, b"%d" % number) for number in range(ROWS)]
            database.executemany("INSERT INTO outbox (topic, key, value) VALUES (?, ?, ?)", rows)
    return path


def test_each_row_of_the_outbox_is_there_once_although_the_relay_is_killed(outbox: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.py"
    page.write_text(program("An outbox in SQLite"), encoding="utf-8")
    with MockCluster(1) as cluster:
        for topic in ("orders", "invoices"):
            cluster.create_topic(topic, partitions=3)
        cluster.create_topic("outbox-position", partitions=1)
        batches_until_killed = [3, 1, 6, ROWS]
        for count in batches_until_killed:
            command = [sys.executable, "-c", CHILD, str(page), cluster.bootstrap_servers, str(outbox)]
            with Child(command, stdout=subprocess.PIPE, text=True) as child:
                watchdog = threading.Timer(60, child.kill)
                watchdog.start()
                assert child.stdout is not None
                for _ in range(count):
                    if not child.stdout.readline():
                        break
                    if len(cluster.records("outbox-position", committed=True)) and last(cluster) == ROWS:
                        break
                watchdog.cancel()  # the end of the block kills it, wherever it is
        sent = [
            int(record.value or b"-1")
            for topic in ("orders", "invoices")
            for record in cluster.records(topic, committed=True)
        ]
        assert sorted(sent) == list(range(ROWS))
        assert last(cluster) == ROWS


STEPS = [
    # The request at which the relay is killed. It was sent, and is carried out.
    ("Metadata", 1), ("InitProducerId", 1), ("ListOffsets", 1), ("Produce", 1), ("Produce", 4), ("EndTxn", 1), ("Fetch", 1),
    ("EndTxn", 2), ("Produce", 7),
]  # fmt: skip


@pytest.mark.slow
def test_each_row_is_there_once_wherever_the_relay_is_killed(outbox: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.py"
    page.write_text(program("An outbox in SQLite"), encoding="utf-8")
    with MockCluster(1) as cluster:
        for topic in ("orders", "invoices"):
            cluster.create_topic(topic, partitions=3)
        cluster.create_topic("outbox-position", partitions=1)
        command = [sys.executable, "-c", CHILD, str(page), cluster.bootstrap_servers, str(outbox)]
        for api, nth in STEPS:
            with Child(command, stdout=subprocess.DEVNULL) as child:
                rule = cluster.on_request(api, child.kill, nth=nth)
                child.wait(60)
                assert rule.is_spent, f"it has ended before {api} {nth}"
        assert 0 < last(cluster) < ROWS
        with Child(command, stdout=subprocess.PIPE, text=True) as child:
            assert child.stdout is not None
            while child.stdout.readline() and last(cluster) < ROWS:
                pass
        read = [
            (record.key, record.value)
            for topic in ("orders", "invoices")
            for record in cluster.records(topic, committed=True)
        ]
        assert sorted(int(value or b"-1") for _, value in read) == list(range(ROWS))
        assert all(key == value for key, value in read)
        assert last(cluster) == ROWS


def last(cluster: MockCluster) -> int:
    return int(cluster.records("outbox-position", committed=True)[-1].value or b"0")


def test_the_query_of_the_outbox_goes_on_after_a_position(outbox: Path) -> None:
    rows_after = names_of("An outbox in SQLite")["rows_after"]
    assert [row[0] for row in rows_after(str(outbox), 0, 3)] == [1, 2, 3]
    assert [row[0] for row in rows_after(str(outbox), 3, 2)] == [4, 5]
    assert rows_after(str(outbox), ROWS) == []
