"""The way of records while `exactly_once` owns the transactions: what is dropped, and which tasks may send."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from aiokprod.errors import SendTimeoutError, TransactionAbortedError, UsageError
from aiokprod.pipeline.sending.owned_path import TICKET, OwnedPath, Ticket
from aiokprod.testing import MemoryProducer


@contextmanager
def owned(producer: MemoryProducer, owner: object) -> Iterator[None]:
    path = producer._path
    assert path is not None
    producer._use_path(OwnedPath(path, owner))
    try:
        yield
    finally:
        producer._use_path(path)


def test_records_are_dropped_while_the_transaction_can_only_be_aborted() -> None:
    async def scenario() -> MemoryProducer:
        async with MemoryProducer(transactional_id="tx") as producer:
            with owned(producer, producer):
                with pytest.raises(UsageError, match="no transaction is open"):
                    producer.send("t", b"v")
                producer.begin_transaction()
                await producer.send("t", b"first")
                producer._transactor().failed(SendTimeoutError("too slow"))
                for delivery in (producer.send("t", b"v"), producer.try_send("t", b"v"), producer.send("t")):
                    assert delivery.done()
                    with pytest.raises(TransactionAbortedError) as caught:
                        await delivery
                    assert isinstance(caught.value.__cause__, SendTimeoutError)
                    assert delivery.explain().topic == "t"
                    assert not delivery.recall()
                with pytest.raises(TransactionAbortedError):
                    await producer.send_many("t", iter([b"v"]))
                with pytest.raises(TransactionAbortedError):
                    await producer.send_many("t", [b"v"])
                assert not producer.send("t", b"v").cancelled()  # dropped again after such a call
                await producer.abort_transaction()
                producer.begin_transaction()
                await producer.send("t", b"second")
                await producer.commit_transaction()
        return producer

    producer = asyncio.run(scenario())
    assert [record.value for record in producer.records] == [b"second"]


def test_a_task_sends_unless_its_batch_is_over() -> None:
    async def scenario() -> MemoryProducer:
        async with MemoryProducer(transactional_id="tx") as producer:

            async def sends(ticket: Ticket | None, value: bytes) -> None:
                TICKET.set(ticket)  # in the context of this task
                producer.send("t", value)
                await producer.send_many("t", [value])
                await producer.send_many("t", iter([value]))

            over, open_one, of_another = Ticket(producer), Ticket(producer), Ticket(object())
            over.is_over = of_another.is_over = True
            async with producer.transaction():
                with owned(producer, producer):
                    for ticket, value in ((None, b"none"), (open_one, b"open"), (of_another, b"another")):
                        await asyncio.create_task(sends(ticket, value))
                    with pytest.raises(UsageError, match="is over"):
                        await asyncio.create_task(sends(over, b"over"))
                await asyncio.create_task(sends(over, b"afterwards"))
        return producer

    producer = asyncio.run(scenario())
    values = [value for value in (b"none", b"open", b"another", b"afterwards") for _ in range(3)]
    assert [record.value for record in producer.records] == values
