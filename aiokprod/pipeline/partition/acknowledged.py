"""`Acknowledged`: the last offset of a partition that was acknowledged, and what contradicts it. One per partition queue. Pure.

Batches of a partition are appended in the order in which they were opened (docs/ledger.md). So the offset of a batch is behind
the offsets of all batches before it, unless the log was cut, or the topic is another one of the same name. Whether it is, the
metadata say: see `DataLosses`. Cost: some comparisons per answer.

What does not count: a batch without an offset (46, or a proof); a batch whose acknowledgement comes after that of a later one,
as its first answer was lost; two parts of one batch. The start of the log is not compared: retention and DeleteRecords may
move it beyond any offset at any time.
"""

from __future__ import annotations


class Acknowledged:
    """The last acknowledged batch of a partition, with which the next ones are compared."""

    __slots__ = ("_next", "_ordinal", "incarnation", "leader_epoch", "topic_id")

    def __init__(self) -> None:
        self._ordinal = 0  # of the last batch, as its ledger counts them
        self._next = 0  # the offset behind it
        self.topic_id: bytes = b""  # of the topic then, as the two others
        self.incarnation: int = 0
        self.leader_epoch: int = -1

    def note(
        self, ordinal: int, base_offset: int, count: int, topic_id: bytes, incarnation: int, leader_epoch: int
    ) -> tuple[int, int] | None:
        """Take in the acknowledgement of a batch; return the first and the last offset that it contradicts; None: none.

        Args:
            ordinal: of the batch.
            base_offset: of its first record.
            count: its records.
            topic_id: of the topic; zeros if brokers tell none.
            incarnation: of the topic, where brokers tell no ids.
            leader_epoch: of the leader; -1: not known.
        """
        if ordinal < self._ordinal:
            return None
        behind = base_offset + count
        if ordinal == self._ordinal:
            self._next = max(self._next, behind)
            return None
        lost: tuple[int, int] | None = None
        if topic_id != self.topic_id or incarnation != self.incarnation:
            self.topic_id, self.incarnation = topic_id, incarnation
        elif base_offset < self._next:
            lost = base_offset, self._next - 1
        self._ordinal, self._next = ordinal, behind
        if lost is None:  # else the epoch stays that of the batch that is lost, until the loss is noted
            self.leader_epoch = leader_epoch
        return lost

    def __repr__(self) -> str:
        return f"<Acknowledged to {self._next - 1}>"
