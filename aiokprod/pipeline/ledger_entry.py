"""`Entry`: what the broker sees as one record batch; and the actions a ledger asks for. Values of the ledger, no rules."""

from __future__ import annotations

from enum import IntEnum

from aiokprod.pipeline.batch import ProducerBatch, Range

NO_PRODUCER = -1


class Outcome(IntEnum):
    """What the caller is told."""

    DELIVERED = 0
    NOT = 1
    """Certainly not persisted."""
    POSSIBLY = 2


class Entry:
    """Records of one batch (all of them, unless some left), with the numbers they were stamped with."""

    __slots__ = (
        "acked", "alone", "asked", "attempt", "batch", "code", "count", "dead", "doubt", "encoded", "first_sequence",
        "flying", "is_sealed", "named", "newest_ms", "ordinal", "producer_epoch", "producer_id", "ranges",
    )  # fmt: skip

    def __init__(self, ordinal: int, batch: ProducerBatch) -> None:
        self.ordinal = ordinal
        self.batch = batch
        self.ranges: list[Range] = []  # known once sealed
        self.count = 0  # records; known once sealed
        self.newest_ms = -1  # newest record timestamp: what the broker ages the producer by
        self.is_sealed = False
        self.producer_id = NO_PRODUCER
        self.producer_epoch = -1
        self.first_sequence = -1
        self.flying = False
        self.attempt = 0
        self.alone = False  # ACKED in a round where one before it was refused: proves nothing (R3.1)
        self.doubt = False  # some attempt ended without a certain answer; sticky
        self.acked = False
        self.dead = False  # settled for its callers, keeps its place until the round is over
        self.asked = False  # no verdict yet, those behind will tell (R7)
        self.code: int | None = None  # last error of this round
        self.named: tuple[int, ...] = ()
        self.encoded: object = None  # the partition queue's; None again whenever records leave

    @property
    def is_stamped(self) -> bool:
        return self.producer_id != NO_PRODUCER

    @property
    def is_sent(self) -> bool:
        """Has it ever been handed to the transport? Then it settles as one."""
        return self.attempt > 0

    @property
    def is_open_ended(self) -> bool:
        """Neither ACKED nor dead."""
        return not self.acked and not self.dead

    @property
    def identity(self) -> tuple[int, int]:
        return self.producer_id, self.producer_epoch

    def unstamp(self) -> None:
        self.producer_id = NO_PRODUCER
        self.producer_epoch = -1
        self.first_sequence = -1

    def seal(self) -> None:
        """No more records."""
        if not self.is_sealed:
            self.is_sealed = True
            self.ranges, self.newest_ms = self.batch.sealed_view()
            self.count = sum(last - first for first, last in self.ranges)

    def deadline(self) -> float:
        """Of its oldest record."""
        return self.batch.deadline_of(self.ranges[0][0] if self.ranges else self.batch.first_unsettled())

    def positions(self, named: tuple[int, ...]) -> list[int]:
        """Indices in the batch of records named by their position in the entry."""
        wanted = set(named)
        indices = [index for first, last in self.ranges for index in range(first, last)]
        return [index for position, index in enumerate(indices) if position in wanted]

    def without(self, indices: list[int]) -> None:
        """These records leave."""
        gone = set(indices)
        ranges: list[Range] = []
        for first, last in self.ranges:
            at = first
            for index in range(first, last):
                if index in gone:
                    if index > at:
                        ranges.append((at, index))
                    at = index + 1
            if at < last:
                ranges.append((at, last))
        self.ranges = ranges
        self.count = sum(last - first for first, last in ranges)
        self.encoded = None

    def halves(self) -> tuple[list[Range], list[Range]]:
        """Its ranges cut in the middle."""
        cut = self.count // 2
        front: list[Range] = []
        back: list[Range] = []
        for first, last in self.ranges:
            take = min(cut, last - first)
            if take:
                front.append((first, first + take))
            if take < last - first:
                back.append((first + take, last))
            cut -= take
        return front, back

    def __repr__(self) -> str:
        flags = "".join(
            letter
            for letter, on in zip("FDAXQ", (self.flying, self.doubt, self.acked, self.dead, self.asked), strict=True)
            if on
        )
        return f"<Entry {self.ordinal}: {self.count} records at {self.first_sequence} of {self.identity} {flags}>"


class Action:
    """What a ledger asks for."""

    __slots__ = ()


class Settle(Action):
    """These records have their outcome."""

    __slots__ = ("attempts", "base_offset", "batch", "code", "outcome", "ranges", "why")

    def __init__(
        self,
        batch: ProducerBatch,
        ranges: list[Range],
        outcome: Outcome,
        base_offset: int | None,
        why: str,
        code: int | None,
        attempts: int,
    ) -> None:
        self.batch = batch
        self.ranges = ranges
        self.outcome = outcome
        self.base_offset = base_offset
        self.why = why
        self.code = code
        self.attempts = attempts

    def __repr__(self) -> str:
        return f"<Settle {self.ranges} {self.outcome.name} offset {self.base_offset} {self.why}>"


class Chase(Action):
    """Put a chaser behind everything in flight to the old leader; answer with `returned`."""

    __slots__ = ("node",)

    def __init__(self, node: int) -> None:
        self.node = node


class NeedIdentity(Action):
    """Answer with `granted`: the epoch after `used`, or a fresh producer id."""

    __slots__ = ("fresh", "used")

    def __init__(self, used: tuple[int, int] | None, fresh: bool) -> None:
        self.used = used
        self.fresh = fresh


class Abort(Action):
    """Transactional: everything has failed; `granted` follows when the coordinator has ended the transaction."""

    __slots__ = ()


class WantMetadata(Action):
    """The answer says that our picture of the cluster is out of date."""

    __slots__ = ("code",)

    def __init__(self, code: int) -> None:
        self.code = code
