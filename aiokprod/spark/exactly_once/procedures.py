"""The procedures of the driver: which request follows which answer. Pure.

Each is a generator: it yields a request and is sent its answer. `requests.py` carries the requests out on a cluster, the
model of the tests in a world with crashes at every step.

    opening   TakeToken, ReadState, CommitAll, ListLeftovers, TakeToken(after), FenceAll, ReadMarkers, WriteDone
              before the tasks; all but the first two are left out where there is nothing to do
    commit    WriteDecision, CommitAll, WriteDone      behind the tasks
    sweep     TakeToken(after), FenceAll               behind a commit that has found leftovers
    abort     ListLeftovers, TakeToken(after), ReadFacts, FenceAll      instead of a commit
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from aiokprod.spark.exactly_once.protocol import (
    PROTOCOL,
    Attempt,
    BatchName,
    Decision,
    Fate,
    Marker,
    Opening,
    Protocol,
    Refusal,
    Report,
    Token,
)


@dataclass(frozen=True, slots=True)
class TakeToken:
    """Take over the control id. The answer is a `Token`; None: not taken, as a newer one than `after` is there.

    Args:
        after: take it only if this is the newest token.
    """

    after: Token | None = None


@dataclass(frozen=True, slots=True)
class ReadFacts:
    """Read the last decision and the last finished batch. The answer is `Facts`."""


class Facts(NamedTuple):
    """The recorded facts about batches."""

    decision: Decision | None
    done: BatchName | None


@dataclass(frozen=True, slots=True)
class ReadState:
    """Read the facts and find the leftovers, in any order. The answer is `State`."""


class State(NamedTuple):
    """The recorded facts, and the open transactions of tasks."""

    facts: Facts
    leftovers: tuple[Attempt, ...]


@dataclass(frozen=True, slots=True)
class CommitAll:
    """Commit these transactions, in any order. The answer is the `Fate` of each, {Attempt: Fate}."""

    attempts: tuple[Attempt, ...]
    version: int


@dataclass(frozen=True, slots=True)
class ListLeftovers:
    """Find the open transactions of tasks. The answer is a tuple of Attempt."""


@dataclass(frozen=True, slots=True)
class FenceAll:
    """Abort these transactions, if their ids still have these identities, and fence what writes in them. The answer is None."""

    attempts: tuple[Attempt, ...]


@dataclass(frozen=True, slots=True)
class ReadMarkers:
    """Read the markers of this many partitions of the job. The answer is {partition: Marker}; None: one is pending."""

    tasks: int


@dataclass(frozen=True, slots=True)
class WriteDecision:
    """Record a decision, if the token is the newest one. The answer is True; False: a newer driver is there."""

    token: Token
    decision: Decision


@dataclass(frozen=True, slots=True)
class WriteDone:
    """Record that a batch is finished. The answer is a tuple of Attempt: the leftovers, found at the same time.

    Args:
        batch: that is finished.
        lists: find leftovers; False: the answer is empty. It is so, too, if they are not found in time: the batch is finished.
    """

    batch: BatchName
    lists: bool = False


Request: TypeAlias = (
    TakeToken | ReadFacts | ReadState | CommitAll | ListLeftovers | FenceAll | ReadMarkers | WriteDecision | WriteDone
)
Ended: TypeAlias = Mapping[Attempt, Fate]


@dataclass(frozen=True, slots=True)
class Committed:
    """The end of a commit: what happened.

    Args:
        is_newest: False: a newer driver has taken over, and nothing was committed.
        refusal: why nothing was committed.
        missing: transactions that are not committed: the batch is not finished.
        leftovers: open transactions of attempts that did not win.
    """

    is_newest: bool = True
    refusal: Refusal | None = None
    missing: tuple[Attempt, ...] = ()
    leftovers: tuple[Attempt, ...] = ()


def opening(clock: Callable[[], float], protocol: Protocol = PROTOCOL) -> Generator[Request, Any, Opening | None]:
    """Open a batch: finish what was decided, abort what was not, and find the state of the last batch.

    Args:
        clock: Unix time; it is read behind the facts, as the machine may sleep for a week before them.
        protocol: the decisions.

    Returns:
        What the tasks are told; None: a newer driver has taken over meanwhile.
    """
    token: Token | None = yield TakeToken()
    assert token is not None
    state: State = yield ReadState()
    facts, leftovers = state
    decision = facts.decision
    attempts = protocol.unfinished(decision, facts.done)
    fates: Ended = {}
    if decision is not None and attempts:
        fates = yield CommitAll(attempts, decision.version)
        leftovers = yield ListLeftovers()  # without what was committed
    needs_markers = decision is not None and not protocol.is_finished(fates.values())
    markers: Mapping[int, Marker] | None = None
    while True:
        if leftovers:
            # With the newest token behind the list, all of it is older than the tasks of any newer driver (X1).
            token = yield TakeToken(after=token)
            if token is None:
                return None
            yield FenceAll(leftovers)
        markers = (yield ReadMarkers(decision.tasks)) if decision is not None and needs_markers else {}
        if markers is not None:
            break
        leftovers = yield ListLeftovers()
    opened = protocol.opening(token, decision, fates, markers, clock())
    if decision is not None and opened.is_finished and decision.batch != facts.done:
        yield WriteDone(decision.batch)
    return opened


def commit(
    opened: Opening,
    batch: BatchName,
    version: int,
    reports: Sequence[Report],
    now_s: float,
    protocol: Protocol = PROTOCOL,
    *,
    may_duplicate: bool = False,
    stream: str | None = None,
    compares_count: bool = True,
) -> Generator[Request, Any, Committed]:
    """Commit a batch, whose tasks have all reported."""
    decision = protocol.decide(
        opened,
        batch,
        version,
        reports,
        now_s=now_s,
        may_duplicate=may_duplicate,
        stream=stream,
        compares_count=compares_count,
    )
    if decision is None:
        return Committed()
    if isinstance(decision, Refusal):
        return Committed(refusal=decision)
    is_written: bool = yield WriteDecision(opened.token, decision)
    if not is_written:
        return Committed(is_newest=False)
    fates: Ended = yield CommitAll(decision.attempts, version)
    if not protocol.is_finished(fates.values()):
        missing = tuple(each for each, fate in fates.items() if fate is not Fate.COMMITTED)
        return Committed(missing=missing)
    leftovers: tuple[Attempt, ...] = yield WriteDone(batch, lists=bool(decision.attempts))
    return Committed(leftovers=leftovers)


def sweep(token: Token, leftovers: tuple[Attempt, ...]) -> Generator[Request, Any, None]:
    """Abort what attempts that did not win have left open, behind a finished batch: readers would wait for it.

    The next opening would do it, too; but a job may have none for days.
    """
    if (yield TakeToken(after=token)) is not None:
        yield FenceAll(leftovers)


def abort(token: Token, prepared: Sequence[Attempt], protocol: Protocol = PROTOCOL) -> Generator[Request, Any, None]:
    """Abort what is prepared and what attempts have left open, unless it is decided.

    If a newer driver is there, only what is prepared: it may have looked for leftovers before these were made.
    """
    leftovers: tuple[Attempt, ...] = yield ListLeftovers()
    # From here on no commit of this token decides anything, whether it is taken or a newer one is there. With the newest token
    # behind the list, all of it is older than the tasks of any newer driver (X1).
    taken: Token | None = yield TakeToken(after=token)
    facts: Facts = yield ReadFacts()
    ours = prepared if taken is None else (*prepared, *leftovers)
    attempts = protocol.to_abort(facts.decision, dict.fromkeys(ours))
    if attempts:
        yield FenceAll(attempts)
