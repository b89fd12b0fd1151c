"""The check of transactions against what readers of committed records see. Pure: values in, findings out.

The other checks look at the whole log. Records of transactions are judged by the log that `read_committed` readers see.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from aiokprod.model import TransactionOutcome
from aiokprod.testing.checker.history import Finding, Kind, LogRecord, Outcome, Sent

OffsetPlace: TypeAlias = tuple[str, str, int]
"""Group, topic, partition."""


@dataclass(slots=True, eq=False)
class TransactionRun:
    """One transaction of a run.

    Attributes:
        name: for people; one for each transaction.
        session: the producer. The transactions of one session are in the order in which they began.
        outcome: as the producer reported it; None counts as UNKNOWN: the process was killed, for example.
        sends: the records that were accepted inside it, in the order of the calls. Those of one `Sent.session` have to
            stand in that order.
        offsets: the offsets that it has taken in, by group, topic and partition.
        left_out: identities of records that are rightly not in it: they were recalled, for example.
    """

    name: Hashable
    session: Hashable = 0
    outcome: TransactionOutcome | None = None
    sends: list[Sent] = field(default_factory=list[Sent])
    offsets: dict[OffsetPlace, int] = field(default_factory=dict[OffsetPlace, int])
    left_out: set[Hashable] = field(default_factory=set[Hashable])


def check_transactions(
    transactions: Sequence[TransactionRun],
    committed: Iterable[LogRecord],
    offsets: Mapping[OffsetPlace, int] | None = None,
) -> list[Finding]:
    """Return a finding for everything that is wrong with what readers of committed records see.

    Each transaction is there as a whole or not at all, with its offsets, as its outcome says, once, and in order.

    Args:
        transactions: of a session in their order; identities of records are unlike.
        committed: every record that `read_committed` readers see, within a partition in the log's order.
        offsets: the committed offsets at the end; None: they are not judged. Each group is written by one session.

    Returns:
        The findings; an empty list is a good run.
    """
    rank_of = {id(transaction): rank for rank, transaction in enumerate(transactions)}
    owner = {sent.identity: transaction for transaction in transactions for sent in transaction.sends}
    places: dict[Hashable, list[str]] = {}
    in_order: dict[tuple[str, int], list[Hashable]] = {}
    found: list[Finding] = []
    for record in committed:
        where = f"{record.topic}-{record.partition}@{record.offset}"
        if record.identity not in owner:
            text = f"{where} has a record {record.identity!r} that was never sent"
            found.append(Finding(Kind.GHOST, text, record.identity, record.topic, record.partition))
            continue
        places.setdefault(record.identity, []).append(where)
        in_order.setdefault((record.topic, record.partition), []).append(record.identity)
    for identity, at in places.items():
        if len(at) > 1:
            text = f"record {identity!r} is there {len(at)} times: {', '.join(at[:5])}"
            found.append(Finding(Kind.DUPLICATE, text, identity))
    for transaction in transactions:
        found += _whole(transaction, places)
    for (topic, partition), identities in in_order.items():
        found += _order(topic, partition, identities, owner, rank_of)
    if offsets is not None:
        found += _offsets(transactions, places, offsets)
    return found


def _whole(transaction: TransactionRun, places: Mapping[Hashable, Sequence[str]]) -> list[Finding]:
    name = f"transaction {transaction.name!r}"
    sends = [sent for sent in transaction.sends if sent.identity not in transaction.left_out]
    there = [sent for sent in transaction.sends if sent.identity in places]
    missing = [sent for sent in sends if sent.identity not in places]
    failed = [sent for sent in sends if sent.outcome in (Outcome.NOT_PERSISTED, Outcome.POSSIBLY_PERSISTED)]
    if transaction.outcome is TransactionOutcome.COMMITTED:
        if failed:
            return [_of(Kind.COMMITTED_WITH_FAILURE, failed[0], f"; yet {name} was told committed")]
        return [_of(Kind.LOST, sent, f"of {name}, which was told committed, is not read") for sent in missing[:1]]
    if transaction.outcome is TransactionOutcome.ABORTED:
        if there:
            return [_of(Kind.ABORTED_READ, there[0], f"of {name}, which was told aborted, is read as committed")]
        return []
    if there and missing:
        return [_of(Kind.TORN, missing[0], f"is not read, and {len(there)} others of {name} are")]
    return []


def _of(kind: Kind, sent: Sent, text: str) -> Finding:
    return Finding(kind, f"{sent} {text}", sent.identity, sent.topic, sent.partition)


def _order(
    topic: str,
    partition: int,
    identities: Sequence[Hashable],
    owner: Mapping[Hashable, TransactionRun],
    rank_of: Mapping[int, int],
) -> list[Finding]:
    """Check that a partition has the transactions of a session in their order, and so the records within a transaction."""
    found: list[Finding] = []
    last: dict[Hashable, tuple[int, Hashable]] = {}
    ranks: dict[Hashable, tuple[int, Hashable]] = {}
    for transaction in {id(owner[identity]): owner[identity] for identity in identities}.values():
        ranks |= {sent.identity: (rank, sent.session) for rank, sent in enumerate(transaction.sends)}
    for identity in identities:
        transaction = owner[identity]
        among = rank_of[id(transaction)]
        within, session = ranks[identity]
        for key, rank in (((transaction.session,), among), ((id(transaction), session), within)):
            before, other = last.get(key, (-1, None))
            if rank < before:
                text = f"record {identity!r} stands in {topic}-{partition} behind {other!r}, which was sent after it"
                found.append(Finding(Kind.REORDERED, text, identity, topic, partition))
            else:
                last[key] = (rank, identity)
    return found


def _offsets(
    transactions: Sequence[TransactionRun],
    places: Mapping[Hashable, Sequence[str]],
    offsets: Mapping[OffsetPlace, int],
) -> list[Finding]:
    found: list[Finding] = []
    wanted: dict[OffsetPlace, set[int | None]] = {}
    for transaction in transactions:
        is_there = _is_there(transaction, places)
        for place, offset in transaction.offsets.items():
            if is_there is False:
                continue
            at = wanted.setdefault(place, {None})
            if is_there:
                at.clear()
            at.add(offset)
    for place in {*wanted, *offsets}:
        at, is_now = wanted.get(place, {None}), offsets.get(place)
        if is_now in at:
            continue
        kind = (
            Kind.LOST_OFFSET
            if is_now is None or _was_committed_before(place, is_now, transactions)
            else Kind.DIRTY_OFFSET
        )
        text = f"the offset of {place[1]}-{place[2]} for group {place[0]!r} is {is_now}, and not {_text(at)}"
        found.append(Finding(kind, text, None, place[1], place[2]))
    return found


def _is_there(transaction: TransactionRun, places: Mapping[Hashable, Sequence[str]]) -> bool | None:
    """Return whether a transaction was committed; None: neither the outcome nor a record of it tells."""
    if transaction.outcome in (TransactionOutcome.COMMITTED, TransactionOutcome.ABORTED):
        return transaction.outcome is TransactionOutcome.COMMITTED
    sends = [sent for sent in transaction.sends if sent.identity not in transaction.left_out]
    return any(sent.identity in places for sent in sends) if sends else None


def _was_committed_before(place: OffsetPlace, offset: int, transactions: Iterable[TransactionRun]) -> bool:
    committed = (one for one in transactions if one.outcome is TransactionOutcome.COMMITTED)
    return any(one.offsets.get(place) == offset for one in committed)


def _text(offsets: Iterable[int | None]) -> str:
    return " or ".join("none" if offset is None else f"{offset}" for offset in sorted(offsets, key=lambda at: at or -1))
