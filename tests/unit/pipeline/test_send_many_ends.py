"""`send_many` of a source without end stops when nothing can be sent any more."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator

import pytest
from virtual_rig import run

from aiokprod import Producer, Record
from aiokprod.errors import AiokprodError, ProducerClosedError, ProducerFailedError
from aiokprod.model import ProducerState
from aiokprod.testing import MockCluster
from aiokprod.testing.virtual import VirtualNetwork

ENDS_AT = 1_000
"""values that are taken before the producer ends"""
FAR_BEHIND = 200_000
"""values after which the test gives up"""


class Source:
    """Values without end. It ends the producer itself, as a virtual loop knows no moment between two of them."""

    def __init__(self, producer: Producer, end: Callable[[], object], *, makes_records: bool) -> None:
        self.producer = producer
        self.end = end
        self.makes_records = makes_records
        self.taken = 0
        self.taken_since = 0  # values that are taken of it once the producer has ended

    def values(self) -> Iterator[object]:
        while self.taken < FAR_BEHIND:
            self.taken += 1
            self.taken_since += self.producer.health().state is not ProducerState.READY
            if self.taken == ENDS_AT:
                self.end()
            yield Record(value=b"x") if self.makes_records else b"x"

    async def one_by_one(self) -> AsyncGenerator[object]:
        for value in self.values():
            yield value
            await asyncio.sleep(0)


@pytest.mark.parametrize("kind", ["bytes", "records", "async"])
@pytest.mark.parametrize(("how", "expected"), [("fails", ProducerFailedError), ("closes", ProducerClosedError)])
def test_a_producer_that_ends_meanwhile_ends_the_taking(how: str, kind: str, expected: type[AiokprodError]) -> None:
    """finding 33: all of the source was read, and one error kept for each of its values."""

    async def scenario(network: VirtualNetwork) -> None:
        async with MockCluster(brokers=1, network=network, seed=1, auto_create_topics=False) as cluster:
            cluster.create_topic("t")
            producer = Producer(cluster.bootstrap_servers, dialer=network.dial)
            await producer.start()
            closing: list[asyncio.Task[object]] = []

            def end() -> None:
                if how == "fails":
                    (metadata,) = [each for each in asyncio.all_tasks() if each.get_name() == "metadata"]
                    metadata.cancel()
                else:
                    closing.append(asyncio.create_task(producer.close()))

            source = Source(producer, end, makes_records=kind == "records")
            values = source.one_by_one() if kind == "async" else source.values()
            with pytest.raises(expected):
                await producer.send_many("t", values)
            assert source.taken_since == 1  # the one that met the refusal
            assert ENDS_AT <= source.taken < ENDS_AT + 10_000
            if isinstance(values, AsyncGenerator):
                await values.aclose()
            await producer.close()
            await asyncio.gather(*closing)
            assert producer.health().state is ProducerState.CLOSED

    run(scenario)
