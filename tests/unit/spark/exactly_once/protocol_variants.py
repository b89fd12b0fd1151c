"""The protocol with one rule switched off, which shows what the rule is for. docs/spark_exactly_once.md has the rules."""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from protocol_world import Rules, Wrong

from aiokprod.spark.exactly_once import procedures
from aiokprod.spark.exactly_once.procedures import (
    CommitAll,
    Committed,
    FenceAll,
    ListLeftovers,
    ReadFacts,
    TakeToken,
    WriteDecision,
    WriteDone,
)
from aiokprod.spark.exactly_once.protocol import (
    Attempt,
    BatchName,
    Decision,
    Fate,
    Marker,
    Opening,
    Order,
    Protocol,
    Refusal,
    Report,
    Token,
)


def committed_before_the_decision(
    opened: Opening, batch: BatchName, version: int, reports: Sequence[Report], now_s: float, protocol: Protocol
) -> Generator[Any, Any, Committed]:
    """Commit with X2 off."""
    decision = protocol.decide(opened, batch, version, reports, now_s=now_s)
    if not isinstance(decision, Decision):
        return Committed(refusal=decision)
    fates = yield CommitAll(decision.attempts, version)
    if not protocol.is_finished(fates.values()):
        return Committed(missing=decision.attempts)
    if not (yield WriteDecision(opened.token, decision)):
        return Committed(is_newest=False)
    yield WriteDone(batch)
    return Committed()


def leftovers_without_token(clock: Callable[[], float], protocol: Protocol) -> Generator[Any, Any, Opening | None]:
    """Open with the second half of X1 off: leftovers may be those of a newer driver."""
    procedure = procedures.opening(clock, protocol)
    request, token = next(procedure), None
    while True:
        if isinstance(request, TakeToken) and request.after is not None:
            answer = token
        else:
            answer = yield request
        token = answer if isinstance(request, TakeToken) else token
        try:
            request = procedure.send(answer)
        except StopIteration as done:
            return done.value


def leftovers_first(clock: Callable[[], float], protocol: Protocol) -> Generator[Any, Any, Opening | None]:
    """Open with X3 off."""
    procedure = procedures.opening(clock, protocol)
    answer = yield next(procedure)
    leftovers = yield ListLeftovers()
    yield FenceAll(leftovers)
    while True:
        try:
            answer = yield procedure.send(answer)
        except StopIteration as done:
            return done.value


class WhatIsGoneIsCommitted(Protocol):
    """X4 off: a transaction whose id has gone on counts as committed."""

    def is_in(
        self, attempt: Attempt, decision: Decision, fates: Mapping[Attempt, Fate], markers: Mapping[int, Marker]
    ) -> bool:
        return fates.get(attempt, Fate.COMMITTED) is not Fate.ABORTED


class FactsOfAnyQueryCount(Protocol):
    """X5 off."""

    def is_same_query(self, last: BatchName, batch: BatchName) -> bool:
        return True

    def order(self, opening: Opening, batch: BatchName, partition: int, **how: Any) -> Order | Refusal:
        if opening.last is not None and opening.last.number >= batch.number:
            return Order.SKIP
        return super().order(opening, batch, partition, **how)


class AMarkerStandsForAnyRows(Protocol):
    """X6 off."""

    def is_same(self, marker: Marker, rows: int, fingerprint: int) -> bool:
        return True


class AFinishedBatchIsWrittenAgain(Protocol):
    """X7 off."""

    def order(self, opening: Opening, batch: BatchName, partition: int, **how: Any) -> Order | Refusal:
        found = super().order(opening, batch, partition, **how)
        return Order.WRITE if found is Order.SKIP else found

    def decide(
        self, opening: Opening, batch: BatchName, version: int, reports: Sequence[Report], **how: Any
    ) -> Decision | Refusal | None:
        return super().decide(replace(opening, is_finished=False), batch, version, reports, **how)


class AbortSparesNothing(Protocol):
    """X8 off: what is decided is aborted, too."""

    def to_abort(self, decision: Decision | None, prepared: Collection[Attempt]) -> tuple[Attempt, ...]:
        return tuple(prepared)


def abort_without_token(token: Token, prepared: Sequence[Attempt], protocol: Protocol) -> Generator[Any, Any, None]:
    """Abort with the second half of X8 off: a commit may decide between the look and the abort."""
    facts = yield ReadFacts()
    attempts = protocol.to_abort(facts.decision, prepared)
    if attempts:
        yield FenceAll(attempts)


class ABatchEndsWithWhatIsThere(Protocol):
    """X9 off."""

    def is_finished(self, fates: Collection[Fate]) -> bool:
        return True


class MarkersWithoutTasksAreForgotten(Protocol):
    """X10 off."""

    def decide(
        self, opening: Opening, batch: BatchName, version: int, reports: Sequence[Report], **how: Any
    ) -> Decision | Refusal | None:
        return super().decide(opening, batch, version, reports, **how | {"may_duplicate": True})


class AnOldBatchIsWrittenAgain(Protocol):
    """X11 off."""

    def order(self, opening: Opening, batch: BatchName, partition: int, **how: Any) -> Order | Refusal:
        found = super().order(opening, batch, partition, **how)
        return Order.WRITE if found is Refusal.REWOUND else found


class ABatchWithoutFactsIsWritten(Protocol):
    """X12 off."""

    def order(self, opening: Opening, batch: BatchName, partition: int, **how: Any) -> Order | Refusal:
        found = super().order(opening, batch, partition, **how)
        return Order.WRITE if found is Refusal.NO_FACTS else found


class AQueryThatWasFollowedIsANewOne(Protocol):
    """X13 off."""

    def has_been_followed(self, opening: Opening, batch: BatchName) -> bool:
        return False


class ABatchBehindHalfOfOneIsWritten(Protocol):
    """X14 off."""

    def order(self, opening: Opening, batch: BatchName, partition: int, **how: Any) -> Order | Refusal:
        found = super().order(opening, batch, partition, **how)
        return Order.WRITE if found is Refusal.UNFINISHED else found


class AFinishedBatchMayHaveOtherRows(Protocol):
    """X15 off."""

    def has_same_count(self, opening: Opening, reports: Sequence[Report]) -> bool:
        return True


class AMarkerTellsOfAnyDecision(Protocol):
    """X16 off."""

    def may_be_older(self, attempt: Attempt, decision: Decision) -> bool:
        return False


class WhatHasNoMarkerIsWritten(Protocol):
    """X17 off."""

    def unmarked(self, committed: Collection[int], markers: Mapping[int, Marker]) -> frozenset[int]:
        return frozenset()


class WhatIsForgottenWasAborted(Protocol):
    """X18 off."""

    def unknown(
        self, gone: Collection[int], markers: Mapping[int, Marker], decision: Decision, now_s: float
    ) -> frozenset[int]:
        return frozenset()


@dataclass(frozen=True)
class Variant:
    """A rule that is off, the kind of schedule in which it is missed, and what then goes wrong.

    Args:
        rule: as docs/spark_exactly_once.md names it; behind a comma the part of it that is off.
        kind: one of `protocol_world.KINDS`.
        symptom: what one schedule shows all at once: the harm that this rule is there to prevent.
        why: how the harm comes about.
        rules: the conduct of the drivers without it.
    """

    rule: str
    kind: str
    symptom: frozenset[Wrong]
    why: str
    rules: Rules


def _off(rule: str, kind: str, symptom: Collection[Wrong], why: str, **parts: Any) -> Variant:
    return Variant(rule, kind, frozenset(symptom), why, Rules(**parts))


TWICE = (Wrong.DUPLICATE,)
LOST = (Wrong.LOST,)
HALF = (Wrong.IN_PART,)
HALF_FOR_GOOD = (Wrong.IN_PART, Wrong.REFUSED)
"""A part of the batch is there, and its replay, whose rows have moved, cannot go on: no timeout is to blame."""
MOVE = "transactions time out, rows move"
VARIANTS = (
    _off(
        "X1", "two drivers", TWICE,
        "The old driver still decides, so both drivers commit what their own tasks have written.",
        checks_token=False,
    ),
    _off(
        "X1, leftovers", "old drivers always go on, rows move", HALF_FOR_GOOD,
        "The old driver's list of leftovers has transactions that the new one goes on to decide.",
        opening=leftovers_without_token,
    ),
    _off(
        "X2", "drivers crash", TWICE,
        "A successor finds no decision, so it writes again what the dead driver has committed.",
        commit=committed_before_the_decision,
    ),
    _off(
        "X3", "drivers crash, rows move", HALF_FOR_GOOD,
        "The leftovers of a dead driver include decided transactions, of which others are committed.",
        opening=leftovers_first,
    ),
    _off(
        "X4", MOVE, LOST,
        "A transaction that has timed out counts as committed, so its batch counts as finished.",
        protocol=WhatIsGoneIsCommitted(),
    ),
    _off(
        "X5", "checkpoints are deleted", LOST,
        "The new stream takes batches of the old one for its own, and skips them.",
        protocol=FactsOfAnyQueryCount(),
    ),
    _off(
        "X6", MOVE, (Wrong.LOST, Wrong.DUPLICATE),
        "A committed task stands for its partition, though one of its rows has moved to a task that writes it again.",
        protocol=AMarkerStandsForAnyRows(),
    ),
    _off(
        "X7", "drivers crash", TWICE,
        "Spark runs the batch again, as its own log does not have it, and nothing stops the tasks.",
        protocol=AFinishedBatchIsWrittenAgain(),
    ),
    _off(
        "X8", "commits are stopped, rows move", HALF_FOR_GOOD,
        "Spark's abort beside a commit that goes on takes away what is decided and not committed yet.",
        protocol=AbortSparesNothing(),
    ),
    _off(
        "X8, token", "commits are stopped, rows move", HALF_FOR_GOOD,
        "The commit decides between the abort's look at the decision and its work.",
        abort=abort_without_token,
    ),
    _off(
        "X9", "transactions time out", LOST,
        "A commit that could not be made is no error, so Spark's log gets the batch.",
        protocol=ABatchEndsWithWhatIsThere(),
    ),
    _off(
        "X10", MOVE, TWICE,
        "The committed rows of a task that the replay does not have are written again by other tasks.",
        protocol=MarkersWithoutTasksAreForgotten(),
    ),
    _off(
        "X11", "old checkpoints come back", TWICE,
        "Batches that were committed before the copy's time are written again.",
        protocol=AnOldBatchIsWrittenAgain(),
    ),
    _off(
        "X12", "facts expire", TWICE,
        "Without facts a replay of a committed batch cannot be told from a new one.",
        protocol=ABatchWithoutFactsIsWritten(),
    ),
    _off(
        "X13", "queries take turns", TWICE,
        "The facts are those of the other query, so a committed batch 0 looks like the beginning of a stream.",
        protocol=AQueryThatWasFollowedIsANewOne(),
    ),
    _off(
        "X14", "jobs are skipped", HALF,
        "The decision of the next job replaces that of the half one, which nothing can finish then.",
        protocol=ABatchBehindHalfOfOneIsWritten(),
    ),
    _off(
        "X15", "old checkpoints come back, rows are added", LOST,
        "The number of the batch is known as finished, so the rows that Spark has added are skipped.",
        protocol=AFinishedBatchMayHaveOtherRows(),
    ),
    _off(
        "X16", "rows move, duplicates are allowed", LOST,
        "The marker of an earlier decision stands for a transaction with other rows, which has timed out.",
        protocol=AMarkerTellsOfAnyDecision(),
    ),
    _off(
        "X17", "markers expire", TWICE,
        "A task whose rows are committed finds no marker any more, and writes them again.",
        protocol=WhatHasNoMarkerIsWritten(),
    ),
    _off(
        "X18", "queries stay away for a week", TWICE,
        "Nothing tells any more that a task is committed, and its rows are written again.",
        protocol=WhatIsForgottenWasAborted(),
    ),
)  # fmt: skip
