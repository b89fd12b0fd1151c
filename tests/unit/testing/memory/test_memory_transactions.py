"""A `MemoryProducer` in transactions: what a unit test of an application sees."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from aiokprod import TransactionOutcome
from aiokprod.config import ProducerConfig
from aiokprod.errors import BrokerRejectedError, TransactionAbortedError, UsageError
from aiokprod.metrics import Metrics
from aiokprod.testing import MemoryProducer
from aiokprod.testing.memory.cluster import MemoryCluster
from aiokprod.testing.memory.log import MemoryLog
from aiokprod.testing.memory.transactions import MemoryCoordinators
from aiokprod.transactions.coordinator import CoordinatorKind
from aiokprod.wire.messages.end_txn import EndTxnRequest


def run(scenario: Callable[[MemoryProducer], Awaitable[None]], **options: Any) -> None:
    async def whole() -> None:
        async with MemoryProducer(topics={"t": 3}, transactional_id="tx", **options) as producer:
            await scenario(producer)

    asyncio.run(whole())


def values(producer: MemoryProducer) -> list[bytes | None]:
    return [record.value for record in producer.records]


def test_records_are_seen_when_their_transaction_is_committed() -> None:
    async def scenario(producer: MemoryProducer) -> None:
        for number in range(3):
            async with producer.transaction() as transaction:
                await producer.send("t", b"%d" % number)
                assert len(values(producer)) == number
            assert transaction.outcome is TransactionOutcome.COMMITTED
        assert values(producer) == [b"0", b"1", b"2"]

    run(scenario)


def test_records_of_an_aborted_transaction_are_never_seen() -> None:
    async def scenario(producer: MemoryProducer) -> None:
        with pytest.raises(ZeroDivisionError):
            async with producer.transaction() as transaction:
                await producer.send("t", b"delivered")
                queued = producer.send("t", b"queued")
                raise ZeroDivisionError
        assert transaction.outcome is TransactionOutcome.ABORTED
        assert isinstance(queued.exception(), TransactionAbortedError)
        async with producer.transaction():
            producer.send("t", b"next")
        assert values(producer) == [b"next"]

    run(scenario)


def test_a_scripted_failure_aborts_the_transaction() -> None:
    async def scenario(producer: MemoryProducer) -> None:
        producer.fail_next(BrokerRejectedError("no"))
        with pytest.raises(TransactionAbortedError) as caught:
            async with producer.transaction():
                producer.send("t", b"bad")
                producer.send("t", b"good")
        assert isinstance(caught.value.__cause__, BrokerRejectedError)
        assert values(producer) == []

    run(scenario)


def test_nothing_is_sent_outside_of_a_transaction() -> None:
    async def scenario(producer: MemoryProducer) -> None:
        with pytest.raises(UsageError, match="no transaction is open"):
            producer.send("t", b"v")

    run(scenario)


def test_a_start_forgets_the_transaction_that_was_left_open() -> None:
    async def scenario(producer: MemoryProducer) -> None:
        producer.begin_transaction()
        await producer.send("t", b"lost")
        report = await producer.close()
        assert report.transaction is TransactionOutcome.ABORTED
        await producer.start()
        async with producer.transaction():
            producer.send("t", b"next")
        assert values(producer) == [b"next"]

    run(scenario)


def test_an_end_that_is_asked_for_again_ends_nothing() -> None:
    """As a producer asks it when a transaction begins right behind another."""

    async def whole() -> None:
        config, log = ProducerConfig(bootstrap_servers="b:1"), MemoryLog({"t": 1}, auto_create=False)
        coordinators = MemoryCoordinators(MemoryCluster(config, Metrics(), log, lambda topic: None), log)

        async def end(epoch: int) -> int:
            log.append("t", 0, (b"v", b"v"), (None, None), (), 0, in_transaction=True)
            request = EndTxnRequest("tx", 1, epoch, committed=True)
            answer = await coordinators.ask(CoordinatorKind.TRANSACTION, "tx", request, 5)
            assert answer.error_code == 0
            return len(log)

        assert [await end(epoch) for epoch in (0, 0, 1)] == [1, 1, 3]

    asyncio.run(whole())
