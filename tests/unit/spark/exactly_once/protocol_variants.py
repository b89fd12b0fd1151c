"""The protocol with one rule switched off, which shows what the rule is for. docs/spark_exactly_once.md has the rules."""

from __future__ import annotations

from collections.abc import Collection, Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from protocol_world import Rules

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
    opened: Opening, batch: BatchName, version: int, reports: Sequence[Report], protocol: Protocol
) -> Generator[Any, Any, Committed]:
    """Commit with X2 off."""
    decision = protocol.decide(opened, batch, version, reports)
    if not isinstance(decision, Decision):
        return Committed(refusal=decision)
    fates = yield CommitAll(decision.attempts, version)
    if not protocol.is_finished(fates.values()):
        return Committed(missing=decision.attempts)
    if not (yield WriteDecision(opened.token, decision)):
        return Committed(is_newest=False)
    yield WriteDone(batch)
    return Committed()


def leftovers_without_token(protocol: Protocol) -> Generator[Any, Any, Opening | None]:
    """Open with the second half of X1 off: leftovers may be those of a newer driver."""
    procedure = procedures.opening(protocol)
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


def leftovers_first(protocol: Protocol) -> Generator[Any, Any, Opening | None]:
    """Open with X3 off."""
    procedure = procedures.opening(protocol)
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


@dataclass(frozen=True)
class Variant:
    """A rule that is off, and the kind of schedule in which it is missed."""

    rule: str
    kind: str
    rules: Rules


def _off(rule: str, kind: str, **parts: Any) -> Variant:
    return Variant(rule, kind, Rules(**parts))


MOVE = "transactions time out, rows move"
VARIANTS = (
    _off("X1", "two drivers", checks_token=False),
    _off("X1, leftovers", "two drivers, rows move", opening=leftovers_without_token),
    _off("X2", "drivers crash", commit=committed_before_the_decision),
    _off("X3", "drivers crash, rows move", opening=leftovers_first),
    _off("X4", MOVE, protocol=WhatIsGoneIsCommitted()),
    _off("X5", "checkpoints are deleted", protocol=FactsOfAnyQueryCount()),
    _off("X6", MOVE, protocol=AMarkerStandsForAnyRows()),
    _off("X7", "drivers crash", protocol=AFinishedBatchIsWrittenAgain()),
    _off("X8", "commits are stopped, rows move", protocol=AbortSparesNothing()),
    _off("X8, token", "commits are stopped, rows move", abort=abort_without_token),
    _off("X9", "transactions time out", protocol=ABatchEndsWithWhatIsThere()),
    _off("X10", MOVE, protocol=MarkersWithoutTasksAreForgotten()),
    _off("X11", "old checkpoints come back", protocol=AnOldBatchIsWrittenAgain()),
    _off("X12", "facts expire", protocol=ABatchWithoutFactsIsWritten()),
    _off("X13", "queries take turns", protocol=AQueryThatWasFollowedIsANewOne()),
    _off("X14", "jobs are skipped", protocol=ABatchBehindHalfOfOneIsWritten()),
    _off("X15", "old checkpoints come back, rows are added", protocol=AFinishedBatchMayHaveOtherRows()),
)
