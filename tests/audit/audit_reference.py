"""The verdict said again, in plain Python over lists: what the Spark plan must find, and nothing else."""

from __future__ import annotations

import zlib
from collections import defaultdict
from dataclasses import dataclass, field

from aiokprod.audit import Finding
from aiokprod.claims import Status

Identity = tuple[int, int, int, str]  # run, stream, seq, topic
ACKED = (Status.ACKED, Status.ACKED_AT_LEAST_ONCE)
UNKNOWN = (Status.POSSIBLY_PERSISTED, Status.POSSIBLY_REPEATED)
REPEATABLE = (Status.ACKED_AT_LEAST_ONCE, Status.POSSIBLY_REPEATED)


@dataclass(frozen=True, slots=True)
class ClaimRow:
    """One row of the claims."""

    run: int
    stream: int
    seq: int
    topic: str
    key: bytes | None
    partition: int
    offset: int
    status: Status
    send_us: int = 1_700_000_000_000_000
    ack_us: int = 1_700_000_000_002_000


@dataclass(frozen=True, slots=True)
class LogRow:
    """One record of the log; run None: without an identity."""

    run: int | None
    stream: int
    seq: int
    topic: str
    key: bytes | None
    partition: int
    offset: int


@dataclass(slots=True)
class Expected:
    """The expected result of an audit."""

    findings: dict[Identity, Finding] = field(default_factory=dict)  # of records that something is found of
    places: dict[Identity, set[tuple[int, int]]] = field(default_factory=dict)
    late: dict[Identity, list[int]] = field(default_factory=dict)  # and how deep, in each partition it is late in


def hashed(key: bytes | None) -> int:
    return -1 if key is None else zlib.crc32(key)


def judge(claims: list[ClaimRow], log: list[LogRow]) -> Expected:
    """Judge row by row, with dictionaries."""
    expected = Expected()
    claimed: defaultdict[Identity, list[ClaimRow]] = defaultdict(list)
    found: defaultdict[Identity, list[LogRow]] = defaultdict(list)
    runs = {claim.run for claim in claims}
    for claim in claims:
        claimed[claim.run, claim.stream, claim.seq, claim.topic].append(claim)
    for record in log:
        if record.run is not None and record.run in runs:
            found[record.run, record.stream, record.seq, record.topic].append(record)
    for identity in claimed.keys() | found.keys():
        said = _findings(claimed[identity], found[identity])
        if said:
            expected.findings[identity] = said
        expected.places[identity] = {(record.partition, record.offset) for record in found[identity]}
    twice = {identity[:2] for identity, told in claimed.items() if len(told) > 1}
    _judge_order(expected, {identity: records for identity, records in found.items() if identity[:2] not in twice})
    return expected


def _findings(claims: list[ClaimRow], records: list[LogRow]) -> Finding:
    said = Finding(0)
    if len(claims) > 1:
        return Finding.CLAIMED_TWICE
    if not claims:
        return said | Finding.PHANTOM | (Finding.DUPLICATE if len(records) > 1 else Finding(0))
    claim = max(claims, key=lambda each: each.status)
    if len(records) > 1:
        said |= Finding.REPEATED if claim.status in REPEATABLE else Finding.DUPLICATE
    if not records:
        if claim.status in ACKED:
            said |= Finding.LOST
        elif claim.status in UNKNOWN:
            said |= Finding.UNKNOWN_ABSENT
        return said
    if claim.status is Status.NOT_PERSISTED:
        said |= Finding.CONTRADICTED
    if claim.status in UNKNOWN:
        said |= Finding.UNKNOWN_PRESENT
    told = (claim.partition, claim.offset)
    if claim.status in ACKED and min(told) >= 0 and told not in {(each.partition, each.offset) for each in records}:
        said |= Finding.MISPLACED
    if any(hashed(each.key) != hashed(claim.key) for each in records):
        said |= Finding.ALTERED
    return said


def _judge_order(expected: Expected, found: dict[Identity, list[LogRow]]) -> None:
    lines: defaultdict[tuple[int, int, str, int, bytes | None], list[tuple[int, int]]] = defaultdict(list)
    for (run, stream, seq, topic), records in found.items():
        first: dict[tuple[int, bytes | None], int] = {}
        for record in records:
            at = (record.partition, record.key)
            first[at] = min(first.get(at, record.offset), record.offset)
        for (partition, key), offset in first.items():
            lines[run, stream, topic, partition, key].append((offset, seq))
    for (run, stream, topic, _, _), line in lines.items():
        ahead = -(2**63)
        for _, seq in sorted(line):
            if seq < ahead:
                expected.late.setdefault((run, stream, seq, topic), []).append(min(ahead - seq, 2**63 - 1))
            ahead = max(ahead, seq)
