"""The check of every record's outcome against the log. Pure: sends and log in, findings out. (faults: section 3, 1 to 6)"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from enum import StrEnum

from aiokprod.testing.checker.history import Finding, Kind, LogRecord, Outcome, Sent


class Promise(StrEnum):
    """The guarantee that the producer's options give; each check applies to some of them."""

    EXACTLY_ONCE = "exactly once"  # idempotent
    AT_LEAST_ONCE = "at least once"  # not idempotent: what is sent again may be there twice
    AT_MOST_ONCE = "at most once"  # acks=0: delivered means written to the socket


_Place = tuple[str, int, int]


def check_delivery(
    sends: Sequence[Sent],
    log: Iterable[LogRecord],
    *,
    promise: Promise = Promise.EXACTLY_ONCE,
    others_write: bool = False,
    undelivered_keep_order: bool = False,
    lenience_s: float = 0.0,
) -> list[Finding]:
    """Return a finding for everything that is wrong with the records of `sends`.

    Args:
        sends: in the order of the calls; identities are unlike.
        log: every record of the topics; within a partition in the log's order.
        others_write: records that are not of `sends` may be there.
        undelivered_keep_order: also what was not told delivered, and is there, stands in the order of the sends. No
            producer can promise that: a request of a dead connection may still reach the broker. A cluster whose
            connections die at both ends at once shows it.
        lenience_s: seconds after due_at that still count as in time.

    Raises:
        ValueError: two sends have the same identity; nothing could be told of them.
    """
    found = _resolution(sends, lenience_s)
    known: dict[Hashable, int] = {}
    for rank, sent in enumerate(sends):
        if known.setdefault(sent.identity, rank) != rank:
            raise ValueError(f"two sends are called {sent.identity!r}; identities tell records apart")
    places: dict[Hashable, list[_Place]] = {}
    in_order: dict[tuple[str, int], list[int]] = {}
    for record in log:
        rank = known.get(record.identity, -1)
        if rank < 0:
            if not others_write:
                where = f"{record.topic}-{record.partition} has at {record.offset}"
                text = f"{where} a record {record.identity!r} that was never sent"
                found.append(Finding(Kind.GHOST, text, record.identity, record.topic, record.partition))
            continue
        seen = places.setdefault(record.identity, [])
        if not seen:
            in_order.setdefault((record.topic, record.partition), []).append(rank)
        seen.append((record.topic, record.partition, record.offset))
    found += _presence(sends, places, promise)
    judged = {
        place: [rank for rank in ranks if undelivered_keep_order or sends[rank].outcome is Outcome.DELIVERED]
        for place, ranks in in_order.items()
    }
    found += _order(sends, judged)
    return found


def _finding(kind: Kind, sent: Sent, text: str) -> Finding:
    return Finding(kind, f"{sent} {text}", sent.identity, sent.topic, sent.partition)


def _resolution(sends: Iterable[Sent], lenience_s: float) -> list[Finding]:
    found: list[Finding] = []
    for sent in sends:
        if sent.settled == 0:
            found.append(_finding(Kind.UNRESOLVED, sent, "was never settled"))
            continue
        if sent.settled > 1:
            found.append(_finding(Kind.SETTLED_TWICE, sent, f"was settled {sent.settled} times"))
        if sent.due_at is not None and (late_s := sent.settled_at - sent.due_at - lenience_s) > 0:
            found.append(_finding(Kind.LATE, sent, f"was settled {late_s:.3f} s too late"))
    return found


def _presence(sends: Iterable[Sent], places: Mapping[Hashable, Sequence[_Place]], promise: Promise) -> list[Finding]:
    found: list[Finding] = []
    for sent in sends:
        at = places.get(sent.identity, ())
        if len(at) > 1 and promise is not Promise.AT_LEAST_ONCE:
            found.append(_finding(Kind.DUPLICATE, sent, f"is in the log {len(at)} times: {_text(at)}"))
        if sent.outcome is Outcome.DELIVERED:
            if not at:
                if promise is not Promise.AT_MOST_ONCE:
                    found.append(_finding(Kind.LOST, sent, "is not in the log"))
            elif not any(_agrees(sent, place) for place in at):
                found.append(_finding(Kind.WRONG_OFFSET, sent, f"is in the log at {_text(at)}"))
        elif sent.outcome is Outcome.NOT_PERSISTED and at:
            found.append(_finding(Kind.WRONG_PERSISTENCE, sent, f"is in the log at {_text(at)}"))
    return found


def _agrees(sent: Sent, place: _Place) -> bool:
    topic, partition, offset = place
    return topic == sent.topic and sent.partition in (None, partition) and sent.offset in (None, offset)


def _order(sends: Sequence[Sent], ranks_of: Mapping[tuple[str, int], Sequence[int]]) -> list[Finding]:
    found: list[Finding] = []
    for (topic, partition), ranks in ranks_of.items():
        last: dict[Hashable, int] = {}  # per session the highest rank so far
        for rank in ranks:
            sent = sends[rank]
            before = last.get(sent.session, -1)
            if rank < before:
                text = f"stands in {topic}-{partition} behind {sends[before].identity!r}, which was sent after it"
                found.append(_finding(Kind.REORDERED, sent, text))
            else:
                last[sent.session] = rank
    return found


def _text(places: Sequence[_Place]) -> str:
    return ", ".join(f"{topic}-{partition}@{offset}" for topic, partition, offset in places[:5])
