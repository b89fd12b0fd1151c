"""`error.in_transaction` alone leads through every answer of a broker to a transaction that commits, or to a fresh start."""

from __future__ import annotations

import asyncio

import pytest
from txn_rig import CLUSTERS, committed, run

from aiokprod import InTransaction, Producer, TransactionOutcome
from aiokprod.errors import AiokprodError, TransactionAbortedError, TransactionOutcomeUnknownError, UsageError
from aiokprod.testing import MockCluster
from aiokprod.wire.codes import ErrorCode

EVERY = pytest.mark.parametrize("version", CLUSTERS)
APIS = ("Produce", "AddPartitionsToTxn", "AddOffsetsToTxn", "TxnOffsetCommit", "EndTxn", "InitProducerId")
QUICK = {"delivery_timeout_ms": 3_000, "request_timeout_ms": 500, "max_block_ms": 1_000}


async def attempt(producer: Producer, value: bytes) -> None:
    producer.begin_transaction()
    producer.send("t", value, partition=0)
    await producer.send_offsets_to_transaction({("t", 1): 1}, "g")
    await producer.commit_transaction()


async def by_the_attribute(producer: Producer, value: bytes, steps: set[InTransaction]) -> int:
    """Write the value in a transaction that commits, by what the errors say; return how often it was committed."""
    for _ in range(6):
        try:
            await attempt(producer, value)
        except AiokprodError as error:
            step = error.in_transaction
        else:
            return 1
        while step is InTransaction.ASK_AGAIN:
            try:
                await producer.commit_transaction()
            except AiokprodError as error:
                step = error.in_transaction
            else:
                return 1
        steps.add(step)
        if step is InTransaction.ABORT:
            try:
                await producer.abort_transaction()
            except AiokprodError as error:
                step = error.in_transaction
                steps.add(step)
        if step is InTransaction.CLOSE:
            await producer.close(0)
            await producer.start()
    return 0


@pytest.mark.slow_after(8)
@EVERY
@pytest.mark.parametrize("api", APIS)
def test_the_attribute_leads_through_every_code(version: str, api: str) -> None:
    async def scenario(cluster: MockCluster, producer: Producer) -> None:
        steps: set[InTransaction] = set()
        # Not DUPLICATE_SEQUENCE_NUMBER of what was not written: a broker that lies so is believed.
        codes = [int(code) for code in ErrorCode if code not in (0, 46)]
        for code in codes:
            rule = cluster.fail_next(api, code)
            assert await by_the_attribute(producer, b"%d" % code, steps) == 1, code
            rule.cancel()
            await asyncio.sleep(0.1)
        assert InTransaction.CONTINUE not in steps, "an error of a transaction that says nothing of it"
        seen = await committed(cluster)
        assert sorted(seen, key=str) == sorted((b"%d" % code for code in codes), key=str)

    run(scenario, CLUSTERS[version], **QUICK)


@EVERY
def test_an_abort_behind_a_commit_that_was_told_as_aborted_does_no_harm(version: str) -> None:
    async def scenario(cluster: MockCluster, producer: Producer) -> None:
        producer.begin_transaction()
        await producer.send("t", b"0", partition=0)
        rule = cluster.drop_answer("EndTxn", after_append=False, times=None)
        with pytest.raises(TransactionOutcomeUnknownError) as unknown:
            await producer.abort_transaction()
        assert unknown.value.in_transaction is InTransaction.ABORT, "it is not committed"
        rule.cancel()
        for _ in range(2):
            with pytest.raises(TransactionAbortedError) as aborted:
                await producer.commit_transaction()
            assert aborted.value.in_transaction is InTransaction.ABORT
        assert await producer.abort_transaction() is TransactionOutcome.ABORTED
        with pytest.raises(UsageError):
            await producer.abort_transaction()

    run(scenario, CLUSTERS[version], **QUICK)
