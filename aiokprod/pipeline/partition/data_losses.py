"""`DataLosses`: records that the cluster has lost after it had acknowledged them. One per pipeline.

    PartitionQueue, an acknowledgement contradicts one before -> suspect        the housekeeping, each half second -> look

A topic that was deleted and made again looks alike while batches are sent by its name. So a suspicion is told only when
metadata that were asked for later say that the topic is the same one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aiokprod.errors import AcknowledgedRecordsLostError
from aiokprod.interceptor_chain import InterceptorChain, raise_soon
from aiokprod.logs import StateLog
from aiokprod.metrics import Metrics
from aiokprod.pipeline.wall_clock import wall_s
from aiokprod.wire.reader import ZERO_UUID

if TYPE_CHECKING:  # loaded at the start, with what talks to brokers
    from aiokprod.cluster.client import ClusterClient
    from aiokprod.cluster.metadata.snapshot import TopicSnapshot
    from aiokprod.hooks import DataLoss

SETTLES_S: Final = 1.0
"""After so many seconds the brokers that answer Metadata know that a topic was made again."""
NAMED: Final = 3
"""Lines that the same tick may write; the other losses share one line."""
NEVER_ASKED: Final = -1


class Suspicion:
    """Acknowledged offsets of a partition that a later acknowledgement contradicts."""

    __slots__ = (
        "asked", "at", "first", "incarnation", "last", "leader_epoch", "node", "partition", "topic", "topic_id",
    )  # fmt: skip

    def __init__(
        self,
        topic: str,
        partition: int,
        first: int,
        last: int,
        node: int,
        topic_id: bytes,
        incarnation: int,
        leader_epoch: int,
        now: float,
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.first = first
        self.last = last
        self.node = node  # the leader that has acknowledged the later batch
        self.topic_id = topic_id  # of the topic that has them, as the next
        self.incarnation = incarnation
        self.leader_epoch = leader_epoch  # when they were acknowledged
        self.at = now
        self.asked = NEVER_ASKED  # the number of the last Metadata answer, when others were asked for

    @property
    def records(self) -> int:
        """How many records are lost, at most."""
        return self.last - self.first + 1

    def is_of(self, snapshot: TopicSnapshot) -> bool:
        """Return whether this is certainly the topic that has acknowledged the records, and not another one of its name."""
        if self.topic_id != ZERO_UUID:
            return snapshot.topic_id == self.topic_id
        # Without ids, a topic that was made again shows itself by epochs that went back. An election raises them.
        return (
            snapshot.incarnation == self.incarnation
            and self.partition < len(snapshot.partitions)
            and 0 <= self.leader_epoch < snapshot.partitions[self.partition].leader_epoch
        )

    def text(self) -> str:
        """Return what has happened, and what to do."""
        offsets = f"offset {self.first}" if self.records == 1 else f"offsets {self.first} to {self.last}"
        was = "was" if self.records == 1 else "were"
        records = "a record" if self.records == 1 else f"up to {self.records} records"
        return (
            f"{self.topic}-{self.partition}: the cluster has lost {records} that it had acknowledged: {offsets} {was}"
            f" acknowledged, and broker {self.node} has given offset {self.first} to a later batch; some before it may be lost,"
            " too. Send them again from their source, and look for an unclean election or a lost disk; acks='all',"
            " min.insync.replicas=2 and unclean.leader.election.enable=false prevent it"
        )

    def event(self) -> DataLoss:
        """Return what interceptors are told."""
        from aiokprod.hooks import DataLoss

        return DataLoss(
            topic=self.topic,
            partition=self.partition,
            first_offset=self.first,
            last_offset=self.last,
            records=self.records,
            at=wall_s(),
        )

    def __repr__(self) -> str:
        return f"<Suspicion {self.topic}-{self.partition} {self.first}..{self.last}>"


class DataLosses:
    """The suspicions of one pipeline, and those that have proved true."""

    def __init__(self, metrics: Metrics, log: StateLog, interceptors: InterceptorChain) -> None:
        self._metrics = metrics
        self._log = log
        self._interceptors = interceptors
        self._suspected: dict[tuple[str, int], Suspicion] = {}

    def suspect(self, new: Suspicion) -> None:
        """Note a contradiction; inside a state change."""
        former = self._suspected.get((new.topic, new.partition))
        if former is None:
            self._suspected[new.topic, new.partition] = new
        elif former.topic_id == new.topic_id and former.incarnation == new.incarnation:
            # The log was cut once more before the first loss is told. What both contradict is counted once.
            former.first, former.last = min(former.first, new.first), max(former.last, new.last)
        else:
            self._suspected[new.topic, new.partition] = new

    def look(self, client: ClusterClient, now: float, *, is_last: bool = False) -> AcknowledgedRecordsLostError | None:
        """Tell the losses that are certain by now; return the error of the first one. Outside of every state change.

        Args:
            client: knows the topics.
            now: loop time.
            is_last: the producer closes: what is known by now decides.
        """
        if not self._suspected:
            return None
        certain: list[Suspicion] = []
        for key, each in list(self._suspected.items()):
            if now - each.at < SETTLES_S and not is_last:
                continue
            snapshot = client.topic(each.topic)
            if not is_last:
                answered = client.last_answered(each.topic)
                if each.asked == NEVER_ASKED:
                    each.asked = answered
                    client.refresh(f"{each.topic}-{each.partition} has lost records, or was made again")
                    continue
                if answered <= each.asked:
                    continue
            del self._suspected[key]
            if snapshot is not None and each.is_of(snapshot):
                certain.append(each)
        self._tell(certain)
        return (
            None
            if not certain
            else AcknowledgedRecordsLostError(certain[0].text(), topic=certain[0].topic, partition=certain[0].partition)
        )

    def _tell(self, certain: list[Suspicion]) -> None:
        for number, each in enumerate(certain):
            self._metrics.acknowledged_records_lost.add(each.records)
            if number < NAMED:
                self._log.warned_now(each.text(), topic=each.topic, partition=each.partition, broker=each.node)
            try:
                self._interceptors.data_lost(each.event())
            except (SystemExit, KeyboardInterrupt) as ended:  # the other losses are told, and the producer may fail
                raise_soon(ended)
        if len(certain) > NAMED:
            records = sum([each.records for each in certain[NAMED:]])
            more = len(certain) - NAMED
            self._log.warned_now(
                f"the cluster has lost up to {records} records that it had acknowledged in {more} more partitions, too"
            )

    def __repr__(self) -> str:
        return f"<DataLosses {list(self._suspected.values())}>"
