"""Names of brokers that resolve slowly: how many are looked up at a time, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from random import Random

import pytest
from client_rig import Recorder
from virtual_time import run_virtual

from aiokprod.cluster.dialing.connection_settings import ConnectionSettings
from aiokprod.cluster.dialing.dns import Address
from aiokprod.cluster.metadata.snapshot import BrokerNode
from aiokprod.cluster.parts import LOOKUPS_AT_ONCE, ClusterParts
from aiokprod.cluster.pool import Purpose
from aiokprod.config import ProducerConfig
from aiokprod.errors import ConnectionLostError
from aiokprod.metrics import Metrics

BROKERS = 20
TIMEOUT_S = 40.0  # of the system's resolver, longer than that of a dial


def test_few_names_of_a_metadata_answer_are_looked_up_at_a_time() -> None:  # faults: N17
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        threads: list[asyncio.Future[None]] = []
        most = 0

        async def resolver(host: str, port: int) -> Sequence[Address]:
            nonlocal most
            if host.startswith("slow"):
                threads.append(loop.create_future())
                loop.call_later(TIMEOUT_S, threads[-1].set_result, None)
                most = max(most, sum(not thread.done() for thread in threads))
                await asyncio.shield(threads[-1])
            raise ConnectionLostError(f"{host}: no such name")

        config = ProducerConfig(bootstrap_servers="first.example:9092")
        settings = ConnectionSettings(resolver=resolver)
        parts = ClusterParts(config, Metrics(), Recorder(), settings, clock=None, random=Random(1))
        slow = [BrokerNode(id=number, host=f"slow-{number}.example", port=9092) for number in range(BROKERS)]
        parts.pool.know([*slow, BrokerNode(id=BROKERS, host="127.0.0.1", port=9092)])
        parts.pool.know([BrokerNode(id=-1, host="first.example", port=9092)])

        def dial_all() -> None:
            for node in slow:
                parts.pool.dial(node.id, Purpose.PRODUCE)
                parts.pool.dial(node.id, Purpose.CONTROL)

        dial_all()
        await asyncio.sleep(1)
        for node_id in (-1, BROKERS):  # neither a bootstrap server nor an address waits for the names of brokers
            began = loop.time()
            with pytest.raises(ConnectionLostError, match="no such name"):
                await parts.pool.connecting(node_id, Purpose.CONTROL)
            assert loop.time() - began < 1
        for _ in range(30):
            await asyncio.sleep(10)
            dial_all()
        assert most == LOOKUPS_AT_ONCE
        assert len(threads) > 3 * LOOKUPS_AT_ONCE
        began = loop.time()
        await parts.close()
        assert loop.time() == began

    run_virtual(scenario())
