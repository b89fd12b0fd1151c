"""Defects that other clients had, planted into ours: each a stage or a ledger with one thing done wrong."""

from __future__ import annotations

from aiokprod.pipeline.batch import ProducerBatch, Segment
from aiokprod.pipeline.flushes import Flushes
from aiokprod.pipeline.ledger import Action, Entry, Ledger
from aiokprod.pipeline.partition_queue import PartitionQueue
from aiokprod.pipeline.ports import Queue
from aiokprod.pipeline.retry import RetryHandler


class ResendsUnderFreshNumbers(Ledger):
    """A batch that may be in the log is stamped anew."""

    def _decide(self, now: float, now_ms: int, moved: bool) -> None:
        for entry in self._sent():
            if entry.is_stamped and not entry.acked and not entry.dead:
                entry.unstamp()
                entry.doubt = False
        super()._decide(now, now_ms, moved)


class DropsWhatIsNotLed(Ledger):
    """NOT_LEADER_OR_FOLLOWER passes for an answer."""

    def answer(
        self, entry: Entry, attempt: int, code: int, base_offset: int, named: tuple[int, ...], now: float, now_ms: int
    ) -> list[Action]:
        return super().answer(entry, attempt, 0 if code == 6 else code, base_offset, named, now, now_ms)


class SendsToTheNewLeaderEarly(Ledger):
    """A new leader is taken while the old one owes answers."""

    def leader(self, node: int, leader_epoch: int, topic_id: bytes, now: float, now_ms: int) -> list[Action]:
        if leader_epoch > self.leader_epoch and node >= 0:
            self.node, self.leader_epoch = node, leader_epoch
            for entry in self._sent():
                entry.flying = False
        return super().leader(node, leader_epoch, topic_id, now, now_ms)

    def _bounce(self) -> None:
        for entry in self._sent():
            entry.flying = False
        super()._bounce()


class ResolvesBeforeTheAnswer(PartitionQueue):
    """Written is taken for delivered."""

    def take(self, now: float, now_ms: int) -> Entry | None:
        entry = super().take(now, now_ms)
        if entry is not None:
            self.loop.call_soon(self.answer, entry, entry.attempt, 0, -1, -1, ())
        return entry


class BumpsAllPartitions(RetryHandler):
    """A new epoch of one partition is taken by all, with what they have on the way."""

    def need_identity(self, queue: Queue, used: tuple[int, int] | None, fresh: bool) -> None:
        super().need_identity(queue, used, fresh)
        if used is not None and not fresh:
            self._spread((used[0], used[1] + 1), queue)

    def identity_came(self, identity: tuple[int, int]) -> None:
        super().identity_came(identity)
        self._spread(identity, None)

    def _spread(self, identity: tuple[int, int], source: Queue | None) -> None:
        for queue in self.__dict__.setdefault("chased", {}):
            ledger = queue.ledger
            if queue is not source and ledger.identity not in (None, identity) and not ledger.is_flying:
                for entry in ledger._sent():
                    if entry.is_stamped and not entry.acked:
                        entry.unstamp()
                        entry.doubt = False
                ledger.identity, ledger.next_sequence = identity, 0

    def chase(self, queue: Queue, node: int) -> None:
        self.__dict__.setdefault("chased", {})[queue] = None
        super().chase(queue, node)


class MakesNewBatchesOnRetry(Ledger):
    """What is sent again is cut in two, so that the broker does not know it."""

    def _decide(self, now: float, now_ms: int, moved: bool) -> None:
        head = self._head()
        if head is not None and head.is_stamped and head.count > 1:
            self._split(head)
        super()._decide(now, now_ms, moved)


class FlushesEarly(Flushes):
    """The first batch that is done ends every flush."""

    def finished(self, generation: int) -> None:
        super().finished(generation)
        for _, future in self._waiting:
            if not future.done():
                future.set_result(None)


class RecallsWhatIsOnItsWay(Ledger):
    """A recall takes a record out of a batch that was sent."""

    def recall(self, entry: Entry, index: int) -> bool:
        if super().recall(entry, index):
            return True
        if entry.flying and not entry.dead and any(first <= index < last for first, last in entry.ranges):
            entry.without([index])
            return True
        return False


class KeepsTheBytesOfFailures(PartitionQueue):
    """What fails is not given back to the gate."""

    def _settle_segment(self, batch: ProducerBatch, segment: Segment, is_told: bool) -> None:
        if segment.error is None:
            super()._settle_segment(batch, segment, is_told)
            return
        gate_bytes = batch.charged_bytes
        super()._settle_segment(batch, segment, is_told)
        self.house.free(-(gate_bytes - batch.charged_bytes))


PLANTED: dict[str, type] = {
    "Ledger": Ledger,
    "PartitionQueue": PartitionQueue,
    "RetryHandler": RetryHandler,
    "Flushes": Flushes,
}
"""Names in the assembly, and what stands there when nothing is planted."""

DEFECTS: list[type] = [
    ResendsUnderFreshNumbers, DropsWhatIsNotLed, SendsToTheNewLeaderEarly, ResolvesBeforeTheAnswer, BumpsAllPartitions,
    MakesNewBatchesOnRetry, FlushesEarly, RecallsWhatIsOnItsWay, KeepsTheBytesOfFailures,
]  # fmt: skip
