"""The FastAPI example of docs/exactly_once.md runs: a transaction for each request, from a bounded pool."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi")
httpx = pytest.importorskip("httpx2")

from aiokprod.testing import MockCluster  # noqa: E402

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "exactly_once.md").read_text(encoding="utf-8")
(PROGRAM,) = [text for text in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL) if "class TransactionPool" in text]


def names_of_the_program() -> dict[str, Any]:
    names: dict[str, Any] = {"__name__": "page"}
    exec(compile(PROGRAM, "docs/exactly_once.md", "exec"), names)
    return names


def keys(cluster: MockCluster, topic: str) -> list[int]:
    return sorted(int(record.key or b"-1") for record in cluster.records(topic, committed=True))


async def play(cluster: MockCluster, size: int, requests: Any) -> None:
    for topic in ("orders", "invoices"):
        cluster.create_topic(topic, partitions=3)
    app = names_of_the_program()["make_app"](cluster.bootstrap_servers, size=size)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://shop") as client,
    ):
        await requests(client)


def test_both_records_of_each_request_are_there() -> None:
    async def scenario() -> None:
        async with MockCluster(1) as cluster:

            async def requests(client: Any) -> None:
                answers = await asyncio.gather(*(client.put(f"/orders/{number}") for number in range(20)))
                assert {answer.status_code for answer in answers} == {201}

            await play(cluster, 4, requests)
            assert keys(cluster, "orders") == keys(cluster, "invoices") == list(range(20))

    asyncio.run(scenario())


def test_a_request_whose_record_is_refused_writes_nothing() -> None:
    async def scenario() -> None:
        async with MockCluster(1) as cluster:

            async def requests(client: Any) -> None:
                cluster.fail_next("Produce", 44)
                assert (await client.put("/orders/1")).status_code == 503
                assert (await client.put("/orders/2")).status_code == 201

            await play(cluster, 1, requests)
            assert keys(cluster, "orders") == keys(cluster, "invoices") == [2]

    asyncio.run(scenario())


def test_a_pool_that_is_taken_refuses_and_a_fenced_producer_comes_back() -> None:
    async def scenario() -> None:
        async with MockCluster(1) as cluster:

            async def requests(client: Any) -> None:
                rule = cluster.hold("EndTxn", before_serving=True)
                first = asyncio.create_task(client.put("/orders/1"))
                while not cluster.requests_seen("EndTxn"):
                    await asyncio.sleep(0)
                assert (await client.put("/orders/2")).status_code == 503  # after its patience of one second
                cluster.release(rule)
                assert (await first).status_code == 201
                from aiokprod import Producer

                async with Producer(cluster.bootstrap_servers, transactional_id="shop-0-0"):
                    pass
                assert (await client.put("/orders/3")).status_code == 503
                assert (await client.put("/orders/4")).status_code == 201

            await play(cluster, 1, requests)
            assert keys(cluster, "orders") == keys(cluster, "invoices") == [1, 4]

    asyncio.run(scenario())
