"""The brokers of the transaction world: a coordinator, partitions and a group, with the measured rules (broker: 9 to 11).

`transaction.version` is 0, 1 or 2. Nothing here knows the client: numbers of transactions come with the records, for the
checker alone.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from aiokprod.transactions.machine_actions import Verdict

OK, MOVED, UNSUPPORTED, OUT_OF_ORDER, OLD_EPOCH, STATE, UNKNOWN_PID, BUSY = 0, 16, 35, 45, 47, 48, 49, 51
FENCED, NOT_ADDED = 90, 120
PARTITIONS, GROUP = (0, 1), 9
"""The partitions of the world; GROUP is that of the offsets."""


class Status(Enum):
    EMPTY = "empty"
    ONGOING = "ongoing"
    PREPARE = "prepare"
    COMPLETE = "complete"


@dataclass(slots=True)
class Memory:
    """The state of a producer id in a partition."""

    epoch: int
    last: int = -1
    recent: list[int] = field(default_factory=list)


@dataclass(slots=True)
class Written:
    """A record, or offsets, in the log; `instance` is the coordinator's transaction whose marker decided about it."""

    label: int
    record: int
    producer_id: int
    epoch: int
    instance: int = -1
    is_committed: bool = False


@dataclass(slots=True)
class PartitionLog:
    memory: dict[int, Memory] = field(default_factory=dict)
    written: list[Written] = field(default_factory=list)

    def has_open(self, who: tuple[int, int]) -> bool:
        """Return whether a transaction of this identity has no marker here yet: then the coordinator is not asked."""
        last = next((entry for entry in reversed(self.written) if entry.producer_id == who[0]), None)
        return last is not None and last.instance < 0 and last.epoch == who[1]

    def append(self, label: int, record: int, who: tuple[int, int], sequence: int, zero_first: bool) -> int:
        producer_id, epoch = who
        known = self.memory.get(producer_id)
        if known is None:
            if zero_first and sequence:
                return OUT_OF_ORDER
            known = self.memory[producer_id] = Memory(epoch, sequence - 1)
        if epoch < known.epoch:
            return OLD_EPOCH
        if epoch > known.epoch:
            if sequence:
                return OUT_OF_ORDER
            known = self.memory[producer_id] = Memory(epoch)
        if sequence in known.recent:
            return OK
        if sequence != known.last + 1:
            # After a marker of a newer epoch nothing is known: version 1 takes any first sequence (broker: 1.7, 12.4).
            if known.last >= 0 or zero_first:
                return OUT_OF_ORDER
        known.last = sequence
        known.recent = [*known.recent[-4:], sequence]
        self.written.append(Written(label, record, producer_id, epoch))
        return OK

    def is_behind(self, who: tuple[int, int]) -> bool:
        """Return whether the identity is older than what the partition knows."""
        known = self.memory.get(who[0])
        return known is not None and who[1] < known.epoch

    def mark(self, who: tuple[int, int], instance: int, is_commit: bool) -> None:
        known = self.memory.setdefault(who[0], Memory(who[1]))
        if who[1] > known.epoch:
            self.memory[who[0]] = Memory(who[1])
        for entry in self.written:
            if entry.producer_id == who[0] and entry.instance < 0:
                entry.instance, entry.is_committed = instance, is_commit


@dataclass(slots=True)
class Brokers:
    """The coordinator of one transactional id, with the partitions and the group."""

    version: int
    last_epoch: int = 32766  # the id is changed behind it (broker: 9.10)
    who: tuple[int, int] = (-1, -1)
    before: tuple[int, int] | None = None  # the identity whose requests are taken for repetitions
    status: Status = Status.EMPTY
    verdict: Verdict = Verdict.ABORT
    added: set[int] = field(default_factory=set)
    to_mark: list[int] = field(default_factory=list)
    marker: tuple[int, int] = (-1, -1)
    instance: int = 0
    decided: dict[int, Verdict] = field(default_factory=dict)
    is_wedged: bool = False
    next_producer_id: int = 7
    started: float = 0.0
    now: float = 0.0
    unknown: set[int] = field(default_factory=set)  # partitions that the coordinator does not know yet
    logs: dict[int, PartitionLog] = field(default_factory=lambda: {p: PartitionLog() for p in (*PARTITIONS, GROUP)})

    # ------------------------------------------------------------------ the coordinator
    def initialise(self, who: tuple[int, int]) -> tuple[int, tuple[int, int]]:
        none = (-1, -1)
        if self.is_wedged or self.status is Status.PREPARE:
            return BUSY, none
        if self.who == none:  # never seen, or forgotten: it has a new producer id for all (broker: 9.6)
            who = none
        is_current = who == self.who
        if who != none and not is_current and who != self.before:
            return FENCED, none
        if self.status is Status.ONGOING:
            # (pid, epoch) on TV2 is recognised when it comes again; on TV0 and TV1 it fences itself (broker: 9.9).
            old = self.who
            self._end(Verdict.ABORT, bump=True)
            self.before = old if who != none and self.version == 2 else None
            return BUSY, none
        if who == none or is_current:
            self._bump()
            self.before = None if who == none else who
            self.status = Status.EMPTY
        return OK, self.who

    def add(self, who: tuple[int, int], partitions: set[int]) -> int:
        """AddPartitionsToTxn v3, AddOffsetsToTxn, and what Produce v12 and TxnOffsetCommit v5 do by themselves."""
        if self.is_wedged or self.status is Status.PREPARE:
            return BUSY
        if who[0] != self.who[0]:
            return UNKNOWN_PID
        if who != self.who:
            return FENCED
        if self.status is not Status.ONGOING:
            self.instance += 1
            self.status, self.added, self.started = Status.ONGOING, set(), self.now
        self.added |= partitions
        return OK

    def end(self, version: int, verdict: Verdict, who: tuple[int, int]) -> tuple[int, tuple[int, int]]:
        none = (-1, -1)
        if self.is_wedged:
            return BUSY, none
        if version == 5 and self.version == 0:
            self.is_wedged = True
            return UNSUPPORTED, none
        is_repetition = version == 5 and who == self.before and who != self.who
        if who[0] != self.who[0] and not is_repetition:
            return UNKNOWN_PID, none
        if who != self.who and not is_repetition:
            return FENCED, none
        if is_repetition and self.status is Status.ONGOING:
            return FENCED, none  # it is the next transaction (broker: 10.4c)
        if self.status is Status.ONGOING:
            self._end(verdict, bump=version == 5)
            if version == 5:
                self.before = who
            return OK, self.who if version == 5 else none
        if self.status is Status.PREPARE:
            return (BUSY if verdict is self.verdict else STATE), none
        if version == 5 and not is_repetition:  # nothing is open (broker: 10.5)
            if verdict is Verdict.COMMIT:
                return STATE, none
            self._bump()
            self.before, self.status, self.verdict = who, Status.COMPLETE, Verdict.ABORT
            return OK, self.who
        if self.status is Status.COMPLETE and verdict is self.verdict:
            return OK, self.who if version == 5 else none
        return STATE, none

    def time_out(self) -> None:
        """Abort what is open; only TV2 recognises the owner afterwards (broker: 10.7)."""
        if self.status is Status.ONGOING:
            old = self.who
            self._end(Verdict.ABORT, bump=True)
            self.before = old if self.version == 2 else None

    def expire(self) -> None:
        """Forget the id, which is idle."""
        if self.status is Status.EMPTY or self.status is Status.COMPLETE:
            self.who, self.before, self.status = (-1, -1), None, Status.EMPTY

    def write_marker(self, index: int = 0) -> None:
        if self.to_mark:
            partition = self.to_mark.pop(index % len(self.to_mark))
            self.logs[partition].mark(self.marker, self.instance, self.verdict is Verdict.COMMIT)
        if not self.to_mark and self.status is Status.PREPARE:
            self.status = Status.COMPLETE

    def _end(self, verdict: Verdict, *, bump: bool) -> None:
        self.status, self.verdict = Status.PREPARE, verdict
        self.decided[self.instance] = verdict
        self.to_mark = sorted(self.added)
        old = self.who
        if bump:
            self._bump()
        self.marker = (old[0], old[1] + bump)

    def _bump(self) -> None:
        producer_id, epoch = self.who
        if producer_id < 0 or epoch >= self.last_epoch:
            self.who = (self.next_producer_id, 0)
            self.next_producer_id += 1
        else:
            self.who = (producer_id, epoch + 1)

    # ------------------------------------------------------------------ partitions and the group
    def write(self, version: int, partition: int, label: int, record: int, who: tuple[int, int], sequence: int) -> int:
        """Produce (11 or 12) to a partition, or TxnOffsetCommit (4 or 5) to the group; `version` 1 or 2 names the pair."""
        log = self.logs[partition]
        if version == 2 and self.version == 0:
            self.is_wedged = True
            return UNSUPPORTED
        if log.is_behind(who):
            return OLD_EPOCH
        if not log.has_open(who) and (
            self.status is not Status.ONGOING or self.who != who or partition not in self.added
        ):
            if version == 1:
                return NOT_ADDED
            code = self.add(who, {partition})
            if code != OK:
                return OLD_EPOCH if code in (FENCED, UNKNOWN_PID) else code
        if partition == GROUP:
            log.memory.setdefault(who[0], Memory(who[1])).epoch = who[1]
            log.written.append(Written(label, record, *who))
            return OK
        return log.append(label, record, who, sequence, version == 2)
