"""`Leadership`: the leader and the topic id that a ledger works with, and those it was told since. One per ledger. Pure.

A new leader is adopted in a rewind only: while the old one owes answers, the same numbers must not reach the new one
(faults: I7).
"""

from __future__ import annotations

from aiokprod.wire.reader import ZERO_UUID


class Leadership:
    """Node, leader epoch and topic id of one partition."""

    __slots__ = ("_is_new_topic", "_pending", "epoch", "node", "topic_id")

    def __init__(self, node: int, epoch: int, topic_id: bytes) -> None:
        self.node = node  # -1: no leader is known
        self.epoch = epoch
        self.topic_id = topic_id
        # Node, epoch and topic id that came while answers were due. Written by `learn`, the newest wins; taken by `adopt`.
        self._pending: tuple[int, int, bytes] | None = None
        # The pending leader is that of a recreated topic. Kept apart from the ids: brokers before topic ids tell none.
        self._is_new_topic = False

    @property
    def is_pending(self) -> bool:
        return self._pending is not None

    def learn(self, node: int, epoch: int, topic_id: bytes, *, is_new_topic: bool) -> bool:
        """Compare with what is known; True: this one is newer, and pending from now on."""
        self._is_new_topic |= is_new_topic
        known_node, known_epoch, known_id = self._pending or (self.node, self.epoch, self.topic_id)
        recreated = is_new_topic or _is_recreated(known_id, topic_id)
        if topic_id == ZERO_UUID:
            topic_id = known_id
        # A broker that lags behind repeats old leaders (faults: T10). Epochs order them; where none is told (-1) another
        # node is news, and so is a node of the same epoch after "no leader".
        is_newer = epoch > known_epoch or (
            node != known_node and (epoch == -1 or (epoch == known_epoch and known_node < 0))
        )
        if recreated or is_newer:  # a recreated topic counts its epochs from 0, so they are not compared (faults: T6)
            self._pending = (node, epoch, topic_id)
            return True
        if topic_id != known_id:
            self.topic_id = topic_id  # the broker did not tell ids before
        return False

    def adopt(self) -> bool:
        """Take the pending leader; True: the topic is another one of the same name."""
        if self._pending is None:
            return False
        node, epoch, topic_id = self._pending
        self._pending = None
        recreated = self._is_new_topic or _is_recreated(self.topic_id, topic_id)
        self._is_new_topic = False
        self.node, self.epoch, self.topic_id = node, epoch, topic_id
        return recreated

    def is_recreated(self, topic_id: bytes) -> bool:
        """Return whether this is the id of another topic of the same name."""
        return _is_recreated(self.topic_id, topic_id)


def _is_recreated(known_id: bytes, topic_id: bytes) -> bool:
    return topic_id != known_id and ZERO_UUID not in (topic_id, known_id)
