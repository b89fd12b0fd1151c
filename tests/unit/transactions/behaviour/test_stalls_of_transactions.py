"""Stalls of a transaction: something that it has scheduled is taken away, as a defect would do; the watch puts it back."""

from __future__ import annotations

import asyncio

import pytest
from txn_rig import CLUSTERS, committed, run

from aiokprod import Producer
from aiokprod.testing import MockCluster
from aiokprod.transactions.machine_actions import WakeAt
from aiokprod.transactions.transactor import Transactor


def transactor_of(producer: Producer) -> Transactor:
    pipeline = producer._pipeline
    assert pipeline is not None
    assert pipeline.transactor is not None
    return pipeline.transactor


def test_the_end_of_a_turn_that_is_not_told(heals: list[str]) -> None:
    async def scenario(cluster: MockCluster, producer: Producer) -> None:
        producer.begin_transaction()
        transactor_of(producer)._turn_end = asyncio.Handle(print, (), asyncio.get_running_loop())
        producer.send("t", b"v", partition=0)  # nothing asks for it to be added
        await asyncio.sleep(1)
        await producer.commit_transaction()
        assert await committed(cluster) == [b"v"]
        assert heals == ["the end of a turn is not told to the transaction"]

    run(scenario, CLUSTERS["TV1"])


def test_a_step_that_is_due_and_not_taken(heals: list[str]) -> None:
    async def scenario(cluster: MockCluster, producer: Producer) -> None:
        failing = cluster.fail_next("AddPartitionsToTxn", "CONCURRENT_TRANSACTIONS", times=None)
        producer.begin_transaction()
        producer.send("t", b"v", partition=0)
        transactor = transactor_of(producer)
        loop = asyncio.get_running_loop()
        while not failing.hits or transactor._timer_at > loop.time() + 1:  # until it waits for its next attempt
            await asyncio.sleep(0.001)
        failing.cancel()
        assert transactor._timer is not None
        transactor._timer.cancel()
        await asyncio.sleep(1.5)
        await producer.commit_transaction()
        assert await committed(cluster) == [b"v"]
        assert heals == ["a step of a transaction is due, and is not taken"]

    run(scenario, CLUSTERS["TV1"])


def test_actions_that_are_left(heals: list[str]) -> None:
    async def scenario(cluster: MockCluster, producer: Producer) -> None:
        transactor = transactor_of(producer)
        transactor._actions.append(WakeAt(asyncio.get_running_loop().time() + 0.7))
        await asyncio.sleep(0.6)
        assert not transactor._actions
        assert heals == ["a transaction has decided something, and it is not done"]

    run(scenario)


@pytest.mark.parametrize("version", list(CLUSTERS))
def test_a_transaction_that_waits_for_its_coordinator_does_not_stand_still(version: str) -> None:
    """Each of its waits is a legal one, however long: nothing is healed (tests/conftest.py)."""

    async def scenario(cluster: MockCluster, producer: Producer) -> None:
        held = cluster.hold("AddPartitionsToTxn" if version != "TV2" else "Produce")
        producer.begin_transaction()
        producer.send("t", b"v", partition=0)
        await asyncio.sleep(5)
        cluster.release(held)
        held = cluster.hold("EndTxn")
        ending = asyncio.create_task(producer.commit_transaction())
        await asyncio.sleep(5)
        cluster.release(held)
        await ending
        assert producer.metrics()["stalls_healed"] == 0
        assert await committed(cluster) == [b"v"]

    run(scenario, CLUSTERS[version])
