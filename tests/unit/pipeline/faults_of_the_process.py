"""The promises that hold whatever came between two lines: an exception, the end of the stack, a finalizer that sends.

`source_points.py`, in the folder of all tests, has these faults. `Books` says what must hold after each.
"""

from __future__ import annotations

import asyncio
from typing import Any

from aiokprod import Delivery, Producer, ProducerState
from aiokprod.errors import AiokprodError
from aiokprod.testing import MockCluster


class Books:
    """The records that a producer was given, and the promises that hold whatever came between two lines."""

    def __init__(self, cluster: MockCluster, producer: Producer, topic: str = "t") -> None:
        self.cluster = cluster
        self.producer = producer
        self.topic = topic
        self.sent: dict[bytes, Delivery] = {}
        self.refused: set[bytes] = set()
        """Values whose `send` raised: taken or not, they are in the log once at most."""
        self.taken = 0
        """How many records were sent."""
        self._number = 0

    def value(self) -> bytes:
        """Return a value that no other record has."""
        self._number += 1
        return b"%d" % self._number

    def send(self, **options: Any) -> Delivery:
        """Send a record that must be taken."""
        value = self.value()
        delivery = self.sent[value] = self.producer.send(self.topic, value, **options)
        self.taken += 1
        return delivery

    async def check(self, why: object = "", within_s: float = 300.0) -> None:
        """Flush, and check every promise.

        Each record is acknowledged, and in the log once, at its offset; what was refused is there once at most. No byte, no
        flush, no parked record and no mark is left, and the producer works.
        """
        note = f"after {why}"
        try:
            async with asyncio.timeout(within_s):
                await self.producer.flush()
        except TimeoutError:
            raise AssertionError(f"flush() hangs {note}") from None
        log = self.cluster.records(self.topic)
        values = [record.value for record in log]
        places = {(record.partition, record.offset): record.value for record in log}
        for value, delivery in self.sent.items():
            assert delivery.done(), f"{value!r} has no outcome {note}: {delivery.explain()}"
            error = delivery.exception()
            if error is None:
                metadata = delivery.result()
                assert metadata.offset is not None
                there = places.get((metadata.partition, metadata.offset))
                assert there == value, f"{value!r} is acknowledged at {metadata.offset}, where {there!r} is, {note}"
                assert values.count(value) == 1, f"{value!r} is in the log {values.count(value)} times {note}"
            else:
                assert isinstance(error, AiokprodError)
                raise AssertionError(f"{value!r} failed {note}: {error!r}") from error
        for value in self.refused:
            assert values.count(value) <= 1, f"{value!r} is in the log {values.count(value)} times {note}"
        self.sent.clear()
        self._check_state(note)

    def _check_state(self, note: str) -> None:
        pipeline = self.producer._pipeline
        assert pipeline is not None
        assert pipeline.failure is None, f"the producer has failed {note}: {pipeline.failure!r}"
        parking, gate = pipeline.parking, pipeline.parking.gate
        state = self.producer.health().state
        assert state is ProducerState.READY, f"{state} {note}"
        assert gate.used_bytes == 0, f"{gate.used_bytes} bytes are charged {note}"
        assert (gate.waiting_bytes, gate.waiting_count, gate.reserved_bytes) == (0, 0, 0), f"{gate} {note}"
        pending = pipeline.context.flushes._pending
        assert not any(pending.values()), f"{pending} {note}"
        assert parking.parked_for_topics == 0 and not parking.parked_counts(), f"parked records {note}"
        assert pipeline.context.effects.depth == 0, f"a mark was left {note}"
