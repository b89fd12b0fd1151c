"""The decisions of an exactly-once write, from facts alone. Pure.

    opening (driver, before a batch)   what an earlier driver decided is finished; tasks are told the state of the last batch
    task                               write, or send nothing, or refuse
    commit (driver)                    the decision names every prepared transaction; only then they are committed
    abort (driver)                     what no decision names is aborted

Rules (docs/spark_exactly_once.md has them in full; each is switched off once in tests):
X1 a decision, and the abort of leftovers, need the token of the newest opening;
X2 nothing is committed before a decision names it;
X3 a decided batch is finished before anything is aborted; X4 where a coordinator cannot tell, the marker does;
X5 facts of another query count for nothing; X6 a marker stands for the same rows only;
X7 a finished batch is not written again; X8 abort spares what is decided; X9 a batch ends with all of it committed;
X10 each marker of a batch belongs to a task; X11 a batch older than the facts is refused; X12 so is one behind a gap;
X13 so is one of a query that another one has followed; X14 so is one behind a batch that is only partly committed;
X15 so is a finished batch that comes back with another number of rows;
X16 a marker that was there before a decision tells nothing about its transactions; X17 what is committed and has no marker any
more is refused; X18 so is, days behind its decision, what neither a coordinator nor a marker knows.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, NamedTuple

GENERATIONS: Final = 16
"""Epochs of the control id, one after the other, whose tasks share no transactional id. So a task that begins late, of an older
opening or of a second driver, does not abort what a newer one has prepared. An opening raises the epoch by one, each decision
of version 2 by one more, an abort by one, and leftovers by one or more: so these are some four to sixteen openings. Brokers
keep each id for a week, so there are few."""

MARKERS_LAST_S: Final = 6 * 24 * 3600
"""Seconds behind its decision in which no marker of a batch has expired: a day less than the default of
offsets.retention.minutes, as a marker is older than its decision, and drivers compare their clocks. Less would refuse what is
safe: below transaction.version 2 a coordinator cannot tell how a transaction that timed out has ended."""

EARLIER_QUERIES: Final = 16
"""Former queries of a sink id that are remembered: each new checkpoint makes one. They share one offset with the decision."""


class BatchName(NamedTuple):
    """A batch of a query. A batch job has its `txnAppId` and `txnVersion`."""

    query: str
    number: int


class Attempt(NamedTuple):
    """A prepared transaction: of which partition of the job and which attempt, and its identity."""

    generation: int
    partition: int
    attempt: int
    producer_id: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Decision:
    """The record that a batch is to be committed.

    Args:
        batch: of the transactions.
        version: of the transaction protocol, 1 or 2.
        tasks: number of partitions of the job whose markers may be there: those that had nothing to write are included, and
            those that an earlier decision of the batch had.
        attempts: the transactions.
        earlier: queries that have decided a batch before this one, the last `EARLIER_QUERIES` of them.
        stream: the streaming query in whose `foreachBatch` it was written as a batch job; None: none is known.
        rows: of the batch, those that are committed already included; None: an older record, which has no number.
        marked: partitions of the job that had a marker of this batch before. It has been compared, and stands for the rows, or
            `attempts` has the partition: then other rows are written again, and it stands for none of them.
        decided_s: Unix time of the record, by the clock of its driver; None: an older record, which has none.
    """

    batch: BatchName
    version: int
    tasks: int
    attempts: tuple[Attempt, ...]
    earlier: tuple[str, ...] = ()
    stream: str | None = None
    rows: int | None = None
    marked: tuple[int, ...] = ()
    decided_s: int | None = None


@dataclass(frozen=True, slots=True)
class Marker:
    """The record inside the transaction of a task: for which batch it was, and which rows.

    `fingerprint` is the sum modulo 2**64 over the rows, in any order.
    """

    batch: BatchName
    rows: int
    fingerprint: int


class Fate(Enum):
    """The end of a decided transaction, by its coordinator."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    """By its timeout, as nothing else aborts what is decided."""
    GONE = "gone"
    """The id has gone on: the coordinator cannot tell any more."""


class Token(NamedTuple):
    """The identity of the control id that an opening has taken: proof that no newer driver has."""

    producer_id: int
    epoch: int

    @property
    def generation(self) -> int:
        """The part of the transactional ids of the tasks of this opening."""
        return self.epoch % GENERATIONS


@dataclass(frozen=True, slots=True)
class Opening:
    """The state of the last batch, as the driver tells it to the tasks of a batch.

    Args:
        token: of this opening.
        last: the last decided batch; None: none is known.
        is_finished: all of the last batch is committed.
        markers: of the last batch by the partitions of the job, if it is not finished.
        earlier: queries that have decided a batch before the one of the last batch.
        stream: of the last batch, if it was a batch job of a `foreachBatch`.
        rows: of the last batch; None: not known.
        unmarked: partitions of the job that are committed, and whose markers have expired.
        unknown: partitions of the job of which nothing tells any more whether they are committed.
    """

    token: Token
    last: BatchName | None = None
    is_finished: bool = True
    markers: Mapping[int, Marker] = field(default_factory=dict[int, Marker])
    earlier: tuple[str, ...] = ()
    stream: str | None = None
    rows: int | None = None
    unmarked: frozenset[int] = frozenset()
    unknown: frozenset[int] = frozenset()


class Order(Enum):
    """The treatment of the rows of a task."""

    WRITE = "write"
    SKIP = "skip"
    """All of the batch is committed: the rows are counted, and nothing is sent."""
    COMPARE = "compare"
    """The rows of this task are committed, if they are the same."""


class Refusal(Enum):
    """Why a batch is refused. Nothing of it becomes visible."""

    REWOUND = "rewound"
    """An older batch than the last decided one: the checkpoint is an old copy. Or a batch of the same number, of another stream
    with the same `txnAppId`: the checkpoint is a new one."""
    NO_FACTS = "no facts"
    """The batch before it is not the last decided one: the facts have expired, it was written in another way, or another query
    has decided one since. Or a part of the batch is committed, or may be, and its marker has expired."""
    UNFINISHED = "unfinished"
    """The batch before it is only partly committed, and was not run again."""
    OTHER_ROWS = "other rows"
    """The batch is partly committed, and the replay brings other rows."""
    OTHER_COUNT = "other count"
    """The batch is finished, and comes back with another number of rows: Spark has planned it afresh, as the checkpoint is a
    copy from the batch before."""


class Report(NamedTuple):
    """The result of a task: the transaction it has prepared, None if it sent nothing; the number of its rows, sent or not."""

    order: Order
    attempt: Attempt | None
    rows: int


class Protocol:
    """The decisions. It has no state: a class so that tests can switch rules off."""

    # ------------------------------------------------------------------ opening
    def unfinished(self, decision: Decision | None, done: BatchName | None) -> tuple[Attempt, ...]:
        """Return what has to be committed before a batch begins, and before anything is aborted (X3)."""
        return () if decision is None or decision.batch == done else decision.attempts

    def opening(
        self,
        token: Token,
        decision: Decision | None,
        fates: Mapping[Attempt, Fate],
        markers: Mapping[int, Marker],
        now_s: float,
    ) -> Opening:
        """Judge the last batch, behind the ends of its transactions.

        Args:
            token: of this opening.
            decision: the last one.
            fates: of `unfinished`.
            markers: by the partitions of the job; read if not all fates are COMMITTED, when nothing is pending any more.
            now_s: Unix time.
        """
        if decision is None:
            return Opening(token)
        left = [each for each in decision.attempts if not self.is_in(each, decision, fates, markers)]
        if not left:
            return Opening(token, decision.batch, earlier=decision.earlier, stream=decision.stream, rows=decision.rows)
        of_batch = {number: marker for number, marker in markers.items() if self.is_of(marker, decision.batch)}
        written = {each.partition for each in decision.attempts}
        committed = {each for each in decision.marked if each not in written}
        committed |= written - {each.partition for each in left}
        gone = {each.partition for each in left if fates[each] is Fate.GONE}
        return Opening(
            token,
            decision.batch,
            is_finished=False,
            markers=of_batch,
            earlier=decision.earlier,
            stream=decision.stream,
            rows=decision.rows,
            unmarked=self.unmarked(committed, of_batch),
            unknown=self.unknown(gone, markers, decision, now_s),
        )

    def unknown(
        self, gone: Collection[int], markers: Mapping[int, Marker], decision: Decision, now_s: float
    ) -> frozenset[int]:
        """Return the partitions of which nothing tells whether they are committed (X18).

        A coordinator has forgotten the transaction, and there is no marker: it was aborted, or its marker has expired, which
        happens some minutes before its decision does. A marker of another batch shows that it was aborted: it is the older one,
        in the same place, so it would have expired first.
        """
        if decision.decided_s is not None and abs(now_s - decision.decided_s) < MARKERS_LAST_S:
            return frozenset()
        return frozenset(gone).difference(markers)

    def unmarked(self, committed: Collection[int], markers: Mapping[int, Marker]) -> frozenset[int]:
        """Return the partitions that are committed without a marker (X17).

        Each marker expires on its own, and that of an earlier decision of a batch before the last decision.
        """
        return frozenset(committed).difference(markers)

    def is_in(
        self,
        attempt: Attempt,
        decision: Decision,
        fates: Mapping[Attempt, Fate],
        markers: Mapping[int, Marker],
    ) -> bool:
        """Return whether the transaction of an attempt is committed; X4: the marker tells where the coordinator cannot."""
        fate = fates.get(attempt, Fate.COMMITTED)
        if fate is not Fate.GONE:
            return fate is Fate.COMMITTED
        if self.may_be_older(attempt, decision):
            return False  # if it is this one's, the replay compares equal
        marker = markers.get(attempt.partition)
        return marker is not None and self.is_of(marker, decision.batch)

    def may_be_older(self, attempt: Attempt, decision: Decision) -> bool:
        """Return whether the marker of the partition may be that of an earlier decision of the batch (X16)."""
        return attempt.partition in decision.marked

    def is_of(self, marker: Marker, batch: BatchName) -> bool:
        """Return whether a marker is one of this batch (X5)."""
        return marker.batch == batch

    # ------------------------------------------------------------------ task
    def order(
        self,
        opening: Opening,
        batch: BatchName,
        partition: int,
        *,
        is_stream: bool,
        stream: str | None = None,
        needs_facts: bool | None = None,
    ) -> Order | Refusal:
        """Decide what a task does.

        Args:
            opening: as the driver told it.
            batch: of the task.
            partition: of the job.
            is_stream: numbers of a stream follow each other; those of batch jobs only ascend.
            stream: in whose `foreachBatch` the task of a batch job runs; None: none is known.
            needs_facts: a number above 0 has had one before it, which must be on record; None: that of a stream.
        """
        last = opening.last
        if last is None or not self.is_same_query(last, batch):
            counts_from_0 = is_stream if needs_facts is None else needs_facts
            is_unknown = (counts_from_0 and batch.number > 0) or self.has_been_followed(opening, batch)
            return Refusal.NO_FACTS if is_unknown else Order.WRITE
        if batch.number < last.number:
            return Refusal.REWOUND
        if batch.number > last.number:
            if not opening.is_finished:
                return Refusal.NO_FACTS if opening.unknown else Refusal.UNFINISHED
            return Order.WRITE if batch.number == last.number + 1 or not is_stream else Refusal.NO_FACTS
        if stream is not None and opening.stream is not None and stream != opening.stream:
            return Refusal.REWOUND
        if opening.is_finished:
            return Order.SKIP
        if partition in opening.unmarked or partition in opening.unknown:
            return Refusal.NO_FACTS
        return Order.COMPARE if partition in opening.markers else Order.WRITE

    def is_same_query(self, last: BatchName, batch: BatchName) -> bool:
        """Return whether the facts are of this query (X5)."""
        return last.query == batch.query

    def has_been_followed(self, opening: Opening, batch: BatchName) -> bool:
        """Return whether the query has decided a batch and another one has since (X13): its own facts are gone."""
        return batch.query in opening.earlier

    def is_same(self, marker: Marker, rows: int, fingerprint: int) -> bool:
        """Return whether a replay brings the rows that are committed (X6)."""
        return marker.rows == rows and marker.fingerprint == fingerprint

    # ------------------------------------------------------------------ commit
    def decide(
        self,
        opening: Opening,
        batch: BatchName,
        version: int,
        reports: Sequence[Report],
        *,
        now_s: float,
        may_duplicate: bool = False,
        stream: str | None = None,
        compares_count: bool = True,
    ) -> Decision | Refusal | None:
        """Decide a batch: the decision to record, why it is refused, or None if there is nothing to do.

        Args:
            opening: as the tasks have it.
            batch: of the reports.
            version: of the transaction protocol.
            reports: one of each partition of the job, in its order.
            now_s: Unix time.
            may_duplicate: rows that have moved are written again.
            stream: as the tasks have it.
            compares_count: a finished batch must have as many rows as before.
        """
        if opening.last == batch and opening.is_finished:
            return Refusal.OTHER_COUNT if compares_count and not self.has_same_count(opening, reports) else None
        is_replay = opening.last == batch
        committed = {*opening.markers, *opening.unmarked, *opening.unknown}
        if is_replay and not may_duplicate and any(number >= len(reports) for number in committed):
            return Refusal.OTHER_ROWS  # X10: no task compares these
        attempts = tuple(report.attempt for report in reports if report.attempt is not None)
        rows = sum(report.rows for report in reports)
        marked = tuple(sorted(opening.markers)) if is_replay else ()
        tasks = max(len(reports), *(number + 1 for number in marked)) if marked else len(reports)
        return Decision(batch, version, tasks, attempts, self.earlier(opening, batch), stream, rows, marked, int(now_s))

    def has_same_count(self, opening: Opening, reports: Sequence[Report]) -> bool:
        """Return whether a finished batch comes back with as many rows (X15). Which rows they are does not matter: a legitimate
        replay may bring them in another order, and with other values of a clock or of `rand()`."""
        return opening.rows is None or opening.rows == sum(report.rows for report in reports)

    def earlier(self, opening: Opening, batch: BatchName) -> tuple[str, ...]:
        """Return the queries that have decided a batch before the one of this batch, the latest one at the end."""
        known = opening.earlier if opening.last is None else (*opening.earlier, opening.last.query)
        return tuple(dict.fromkeys(each for each in known if each != batch.query))[-EARLIER_QUERIES:]

    def is_finished(self, fates: Collection[Fate]) -> bool:
        """Return whether a batch is finished (X9)."""
        return all(fate is Fate.COMMITTED for fate in fates)

    # ------------------------------------------------------------------ abort
    def to_abort(self, decision: Decision | None, prepared: Collection[Attempt]) -> tuple[Attempt, ...]:
        """Return what may be aborted: nothing that is decided (X8). The token has been taken before."""
        decided = () if decision is None else decision.attempts
        return tuple(each for each in prepared if each not in decided)


PROTOCOL = Protocol()
