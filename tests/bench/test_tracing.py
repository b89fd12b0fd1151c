"""bench/tracing.py: each way sends its records, and the table compares with plain."""

from __future__ import annotations

import asyncio

import pytest
import tracing

from aiokprod.testing import MockCluster


@pytest.mark.parametrize("way", tracing.WAYS)
def test_each_way_sends_every_record(way: str) -> None:
    async def scenario() -> int:
        async with MockCluster(brokers=1) as cluster:
            cluster.create_topic(tracing.TOPIC)
            figures = await tracing.turn(cluster.bootstrap_servers, way, 300)
            assert figures["rate"] > 0 and figures["cpu_us"] > 0
            return len(cluster.records(tracing.TOPIC))

    assert asyncio.run(scenario()) == 600  # those of the warm-up too


def test_the_table_compares_round_by_round() -> None:
    plain = [{"rate": 100.0, "cpu_us": 1.0}, {"rate": 200.0, "cpu_us": 1.0}]
    half = [{"rate": 50.0, "cpu_us": 4.0}, {"rate": 100.0, "cpu_us": 4.0}]
    assert tracing.table({"plain": plain, "all": half}).split()[-2:] == ["0.50", "0.25"]
