"""`BatchOwner`: whose a batch is. Its partition's queue while there is anything to do with it, then a `Place`.

One queue and one place per partition.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from aiokprod.errors import AiokprodError
from aiokprod.pipeline.delivery import DeliveryState

if TYPE_CHECKING:
    from aiokprod.pipeline.batch import ProducerBatch


class BatchOwner:
    """What a batch asks of its partition queue."""

    __slots__ = ()

    topic: str
    partition: int
    loop: asyncio.AbstractEventLoop

    def urge(self, batch: ProducerBatch) -> None:
        """A waiter came: let the batch go as soon as the connection allows."""
        raise AssertionError("abstract")

    def recall(self, batch: ProducerBatch, index: int) -> bool:
        """Take one record back."""
        raise AssertionError("abstract")

    def withdraw(self, batch: ProducerBatch, index: int, error: AiokprodError) -> bool:
        """Take an unstamped record out and fail it; False if it has been stamped."""
        raise AssertionError("abstract")

    def describe(self, batch: ProducerBatch) -> DeliveryState:
        """Where the batch is."""
        raise AssertionError("abstract")

    def place(self) -> BatchOwner:
        """Who owns a finished batch: one through whom nothing of the pipeline is reached."""
        return self


class Place(BatchOwner):
    """A partition without its queue: the owner of finished batches.

    Whoever keeps a settled Delivery keeps its batch, and would keep the queue, the pipeline and the user's hooks with it;
    if one of these is who keeps it, that is a cycle, and the collector does not see it (see `delivery`).
    """

    __slots__ = ("loop", "partition", "topic")

    def __init__(self, topic: str, partition: int, loop: asyncio.AbstractEventLoop) -> None:
        self.topic = topic
        self.partition = partition
        self.loop = loop

    def urge(self, batch: ProducerBatch) -> None:
        """It is done."""

    def recall(self, batch: ProducerBatch, index: int) -> bool:
        return False

    def withdraw(self, batch: ProducerBatch, index: int, error: AiokprodError) -> bool:
        return False

    def describe(self, batch: ProducerBatch) -> DeliveryState:
        return DeliveryState("settled")
