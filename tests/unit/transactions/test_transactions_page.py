"""docs/transactions.md: its programs run, and its tables name what is there."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from txn_rig import CLUSTERS, committed, run

import aiokprod
import aiokprod.errors
from aiokprod import Producer, TransactionOutcome
from aiokprod.testing import MockCluster

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "transactions.md").read_text(encoding="utf-8")
PROGRAMS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


def names_of(program: str) -> dict[str, Any]:
    names: dict[str, Any] = {"__name__": "page"}
    exec(compile(program, "docs/transactions.md", "exec"), names)
    return names


def test_the_first_program_commits(capsys: pytest.CaptureFixture[str]) -> None:
    with MockCluster(1, auto_create_topics=True) as cluster:
        names_of(PROGRAMS[0].replace("localhost:9092", cluster.bootstrap_servers))
        assert capsys.readouterr().out == "TransactionOutcome.COMMITTED\n"
        assert [record.value for record in cluster.records("invoices", committed=True)] == [b"invoice"]


def test_the_second_program_runs_the_block_again() -> None:
    async def scenario() -> None:
        async with MockCluster(1) as cluster:
            for topic in ("orders", "audit"):
                cluster.create_topic(topic)
            async with Producer(cluster.bootstrap_servers, transactional_id="tx") as producer:
                cluster.fail_next("Produce", 44)
                assert await names_of(PROGRAMS[1])["place"](producer, b"order")
                cluster.fail_next("Produce", 44, times=None)
                assert not await names_of(PROGRAMS[1])["place"](producer, b"order")
            assert [record.value for record in cluster.records("orders", committed=True)] == [b"order"]

    asyncio.run(scenario())


@pytest.mark.parametrize("version", list(CLUSTERS))
@pytest.mark.parametrize("before_serving", [True, False], ids=["not done", "done"])
def test_the_second_program_writes_the_order_once_where_an_end_is_not_known(version: str, before_serving: bool) -> None:
    async def scenario(cluster: MockCluster, producer: Producer) -> None:
        for topic in ("orders", "audit"):
            cluster.create_topic(topic)
        told: list[TransactionOutcome] = []

        async def abort_transaction() -> TransactionOutcome:
            told.append(await producer.abort_transaction())
            return told[-1]

        seen = SimpleNamespace(
            transaction=producer.transaction, send=producer.send, abort_transaction=abort_transaction
        )
        cluster.blackhole_next("EndTxn", before_serving=before_serving, times=2)
        assert await names_of(PROGRAMS[1])["place"](seen, b"order")
        # Version 1 goes on with the verdict that was asked for.
        is_committed = not before_serving or version != "TV2"
        assert told == [TransactionOutcome.COMMITTED if is_committed else TransactionOutcome.ABORTED]
        await committed(cluster)  # until the markers are written
        assert [record.value for record in cluster.records("orders", committed=True)] == [b"order"]

    run(scenario, CLUSTERS[version], max_block_ms=1000, delivery_timeout_ms=2000, request_timeout_ms=1500)


class Batches:
    """A consumer of aiokafka's shape that gives two batches."""

    def __init__(self) -> None:
        self.left = [b"1", b"2"]
        self._coordinator = SimpleNamespace(group_id="g", generation=-1, member_id="", _group_instance_id=None)

    async def getmany(self, timeout_ms: int, max_records: int) -> dict[tuple[str, int], list[Any]]:
        if not self.left:
            raise EOFError
        value = self.left.pop(0)
        return {("in", 0): [SimpleNamespace(value=value, key=None, offset=int(value))]}


def test_the_third_program_commits_offsets_with_its_records() -> None:
    pytest.importorskip("aiokafka")

    async def scenario() -> None:
        async with MockCluster(1) as cluster:
            for topic in ("in", "out"):
                cluster.create_topic(topic)
            async with Producer(cluster.bootstrap_servers, transactional_id="tx") as producer:
                with pytest.raises(EOFError):
                    await names_of(PROGRAMS[2])["copy"](Batches(), producer)
            assert [record.value for record in cluster.records("out", committed=True)] == [b"1", b"2"]
            assert cluster.committed_offsets("g")["in", 0].offset == 3

    asyncio.run(scenario())


def test_the_program_of_two_processes_commits_what_was_prepared() -> None:
    async def scenario() -> None:
        names = names_of(PROGRAMS[3])
        async with MockCluster(1) as cluster:
            cluster.create_topic("orders")
            async with Producer(cluster.bootstrap_servers, transactional_id="tx") as producer:
                text = await names["write"](producer, [b"1", b"2"])
            assert not cluster.records("orders", committed=True)
            assert await names["commit"](cluster.bootstrap_servers, text)
            assert [record.value for record in cluster.records("orders", committed=True)] == [b"1", b"2"]

    asyncio.run(scenario())


def test_what_the_page_names_is_there() -> None:
    for name in re.findall(r"`(\w+Error)`", PAGE):
        assert hasattr(aiokprod.errors, name)
    for call in re.findall(r"`(?:await )?(\w+_transaction)\(", PAGE):
        assert callable(getattr(aiokprod if call == "end_transaction" else Producer, call))
    for outcome in re.findall(r"`(COMMITTED|ABORTED|UNKNOWN)`", PAGE):
        assert outcome in TransactionOutcome.__members__
