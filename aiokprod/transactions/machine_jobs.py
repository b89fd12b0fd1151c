"""The requests of a `TransactionMachine` as jobs: each is asked for again until it is answered for good."""

from __future__ import annotations

from collections import deque
from typing import Final

from aiokprod.transactions.machine_actions import Partition, Verdict

NEW_ID: Final = (-1, -1)
"""The identity in an InitProducerId that takes the id over."""

MOST_CONTRADICTIONS: Final = 5
"""So often INVALID_TXN_STATE is taken as an answer to an abort behind a commit that was answered so: one of them is wrong."""

MARKERS_S: Final = 0.1
"""Seconds after an end behind which its markers are taken to be written, unasked: they take 2 to 56 ms (broker: 10.6)."""


class Job:
    """A request that is repeated. `ticket` is None while no attempt of it waits for an answer."""

    def __init__(self) -> None:
        self.ticket: int | None = None
        self.failures = 0  # in a row; for the backoff
        self.not_before = 0.0

    def may_ask(self, now: float) -> bool:
        """Return whether an attempt may be sent now."""
        return self.ticket is None and now >= self.not_before

    def failed(self, now: float, delay: float) -> None:
        """Note that the attempt came to nothing; the next one waits."""
        self.failures += 1
        self.not_before = now + delay

    def start_again(self) -> None:
        """Forget the backoff."""
        self.failures, self.not_before = 0, 0.0


class InitJob(Job):
    """Ask for an identity."""

    def __init__(self, current: tuple[int, int]) -> None:
        super().__init__()
        self.current = current


class AddJob(Job):
    """Add partitions to the transaction (version 1). It lasts as long as the transaction."""

    def __init__(self) -> None:
        super().__init__()
        self.added: set[Partition] = set()
        self.gathering: dict[Partition, None] = {}  # of this turn of the loop, in order
        self.waiting: dict[Partition, None] = {}
        self.unknown: set[Partition] = set()  # of `waiting`: refused as unknown; one of them refuses all (broker: 10.9)
        self.asked: tuple[Partition, ...] = ()
        self.unknown_not_before = 0.0

    def hold(self, partition: Partition) -> None:
        """Note that batches of the partition wait."""
        if partition not in self.waiting:
            self.gathering[partition] = None

    def end_turn(self) -> None:
        """Let the partitions of this turn be asked for."""
        self.waiting.update(self.gathering)
        self.gathering.clear()

    def next(self, now: float) -> tuple[Partition, ...]:
        """Return the partitions that one request may ask for now; those that may be unknown go by themselves."""
        known = tuple(partition for partition in self.waiting if partition not in self.unknown)
        if known or now < self.unknown_not_before:
            return known
        return tuple(self.waiting)

    def take(self, partitions: tuple[Partition, ...]) -> None:
        """Note that the partitions belong to the transaction."""
        for partition in partitions:
            self.waiting.pop(partition, None)
            self.gathering.pop(partition, None)
            self.unknown.discard(partition)
            self.added.add(partition)

    def release_all(self) -> tuple[Partition, ...]:
        """Take all that wait (version 2: the first Produce adds a partition)."""
        held = (*self.waiting, *self.gathering)
        self.take(held)
        return held


class OffsetsJob(Job):
    """Take the offsets of one call into the transaction: on version 1 add the group first."""

    def __init__(self, number: int, group: str) -> None:
        super().__init__()
        self.number = number
        self.group = group
        self.is_adding = False  # which of the two requests the attempt is


class EndJob(Job):
    """End the transaction with a verdict."""

    def __init__(self, verdict: Verdict) -> None:
        super().__init__()
        self.verdict = verdict


class MarkersJob(Job):
    """Ask whether the markers of the last transaction are written (version 2): its EndTxn once more, with the former identity.

    While they are being written, a coordinator that is asked says so at once (broker: 10.4). A write would wait inside the
    broker, which tries again after 20 ms (broker: 10.6).
    """

    def __init__(self, verdict: Verdict, former: tuple[int, int], until: float) -> None:
        super().__init__()
        self.verdict = verdict
        self.former = former
        self.until = until  # behind it nothing is asked: they are written


class Work:
    """The jobs of one transaction, and what is known of it."""

    def __init__(self) -> None:
        self.adds = AddJob()
        self.groups: set[str] = set()  # added by AddOffsetsToTxn
        self.offsets: deque[OffsetsJob] = deque()  # one at a time, in the order of the calls
        self.end: EndJob | None = None
        self.goes_on = False  # an abort was asked for: in UNKNOWN it is asked for again without a caller
        self.flushed = False
        self.is_preparing = False  # no end is asked for when everything is settled
        # The coordinator may know of the transaction: something was asked of it, or may have been written.
        self.is_touched = False
        self.is_stamped = False  # batches may have been stamped
        # The coordinator does not know it under this identity: nothing is open, and InitProducerId tells if another has the id.
        self.is_gone = False
        # A copy of one of its requests may come late. Version 1 has the same epoch in the next transaction, where such a copy
        # would act (broker: 10.4c, 10.4d): the epoch is renewed first.
        self.is_haunted = False
        # That request may be one that opens the transaction (version 1: AddPartitionsToTxn, AddOffsetsToTxn).
        self.may_open_again = False
        # An EndTxn(commit) may have been taken: it has no certain answer.
        self.commit_may_be_done = False
        # An EndTxn(commit) was answered INVALID_TXN_STATE: it was not done.
        self.commit_was_refused = False
        self.opened_at: float | None = None
        self.is_warned = False
