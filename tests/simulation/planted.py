"""Defects that other clients had, planted into ours: each a stage or a ledger with one thing done wrong."""

from __future__ import annotations

from aiokprod.pipeline.broker.retry import RetryHandler
from aiokprod.pipeline.partition.batch import ProducerBatch, Segment
from aiokprod.pipeline.partition.flushes import Flushes
from aiokprod.pipeline.partition.ledger import Action, Entry, Ledger, State
from aiokprod.pipeline.partition.partition_queue import PartitionQueue
from aiokprod.pipeline.wall_clock import wall_ms


class ResendsUnderFreshNumbers(Ledger):
    """A ledger that stamps a batch again that may be in the log."""

    def _decide(self, now: float, now_ms: int, moved: bool) -> None:
        for entry in self._sent():
            if entry.is_stamped and entry.is_open_ended:
                entry.unstamp()
                entry.is_ambiguous = False
        super()._decide(now, now_ms, moved)


class DropsWhatIsNotLed(Ledger):
    """A ledger that takes NOT_LEADER_OR_FOLLOWER for an acknowledgement."""

    def answer(
        self, entry: Entry, attempt: int, code: int, base_offset: int, named: tuple[int, ...], now: float, now_ms: int
    ) -> list[Action]:
        return super().answer(entry, attempt, 0 if code == 6 else code, base_offset, named, now, now_ms)


class SendsToTheNewLeaderEarly(Ledger):
    """A ledger that takes a new leader while the old one owes answers."""

    def leader(
        self, node: int, leader_epoch: int, topic_id: bytes, now: float, now_ms: int, *, is_new_topic: bool = False
    ) -> list[Action]:
        if leader_epoch > self.leader_epoch and node >= 0:
            self.leadership.node, self.leadership.epoch = node, leader_epoch
            for entry in self._sent():
                entry.land(entry.attempt)
        return super().leader(node, leader_epoch, topic_id, now, now_ms, is_new_topic=is_new_topic)

    def _bounce(self) -> None:
        for entry in self._sent():
            entry.land(entry.attempt)
        super()._bounce()


class ResolvesBeforeTheAnswer(PartitionQueue):
    """A queue that takes written for delivered."""

    def take(self, now: float, now_ms: int) -> Entry | None:
        entry = super().take(now, now_ms)
        if entry is not None:
            self.loop.call_soon(self._resolve, entry, entry.attempt)
        return entry

    def _resolve(self, entry: Entry, attempt: int) -> None:
        self.answer(entry, attempt, 0, -1, -1, (), self.loop.time(), wall_ms())


class BumpsAllPartitions(RetryHandler):
    """A retry handler that gives the new epoch of one partition to all, with their batches in flight."""

    def need_identity(self, queue: PartitionQueue, used: tuple[int, int] | None, fresh: bool) -> None:
        super().need_identity(queue, used, fresh)
        if used is not None and not fresh:
            self._spread((used[0], used[1] + 1), queue)

    def identity_came(self, identity: tuple[int, int]) -> None:
        super().identity_came(identity)
        self._spread(identity, None)

    def _spread(self, identity: tuple[int, int], source: PartitionQueue | None) -> None:
        for queue in self.__dict__.setdefault("chased", {}):
            ledger = queue.ledger
            if queue is not source and ledger.identity not in (None, identity) and not ledger.is_flying:
                for entry in ledger._sent():
                    if entry.is_stamped and entry.state is not State.ACKED:
                        entry.unstamp()
                        entry.is_ambiguous = False
                ledger.identity, ledger.next_sequence = identity, 0

    def chase(self, queue: PartitionQueue, node: int) -> None:
        self.__dict__.setdefault("chased", {})[queue] = None
        super().chase(queue, node)


class MakesNewBatchesOnRetry(Ledger):
    """A ledger that cuts a batch in two for its resend, so that the broker does not know it."""

    def _decide(self, now: float, now_ms: int, moved: bool) -> None:
        head = self._head()
        if head is not None and head.is_stamped and head.count > 1:
            self._split(head, head.count // 2)
        super()._decide(now, now_ms, moved)


class FlushesEarly(Flushes):
    """Flushes that all end with the first batch that is done."""

    def finished(self, generation: int) -> None:
        super().finished(generation)
        for _, future in self._waiting:
            if not future.done():
                future.set_result(None)


class RecallsWhatIsOnItsWay(Ledger):
    """A ledger whose recall takes a record out of a batch that was sent."""

    def recall(self, entry: Entry, index: int) -> bool:
        if super().recall(entry, index):
            return True
        if entry.state is State.FLYING and any(first <= index < last for first, last in entry.ranges):
            entry.without([index])
            return True
        return False


class KeepsTheBytesOfFailures(PartitionQueue):
    """A queue that does not give the bytes of failures back to the gate."""

    def _settle_segment(self, batch: ProducerBatch, segment: Segment, is_told: bool) -> None:
        gate_bytes = batch.charged_bytes
        super()._settle_segment(batch, segment, is_told)
        if segment.error is not None:
            self._room.free(batch.charged_bytes - gate_bytes)


PLANTED: dict[str, type] = {
    "Ledger": Ledger,
    "PartitionQueue": PartitionQueue,
    "RetryHandler": RetryHandler,
    "Flushes": Flushes,
}
"""Names in `pipeline/broker_backend.py` and `pipeline/pipeline.py`, and what stands there when nothing is planted."""

DEFECTS: list[type] = [
    ResendsUnderFreshNumbers, DropsWhatIsNotLed, SendsToTheNewLeaderEarly, ResolvesBeforeTheAnswer, BumpsAllPartitions,
    MakesNewBatchesOnRetry, FlushesEarly, RecallsWhatIsOnItsWay, KeepsTheBytesOfFailures,
]  # fmt: skip
