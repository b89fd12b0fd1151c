"""`Verdict`: what an audit found, as values; its line, its JSON, its exit status. Pure."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Final

from aiokprod.claims.rows import Status
from aiokprod.spark.audit.findings import WRONG, Finding
from aiokprod.spark.audit.latency import quantiles_us

CLEAN, FINDINGS, NOT_JUDGED = 0, 1, 2
SHOWN: Final = 20  # identities in the JSON summary, for each kind


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedRecord:
    """One record that something was found of."""

    run: int
    stream: int
    seq: int
    topic: str
    findings: Finding
    status: Status | None
    """what was claimed; None: nothing"""
    told: tuple[int, int] | None
    """partition and offset that the producer was told"""
    places: tuple[tuple[int, int], ...]
    """partitions and offsets where it is"""
    copies: int

    @property
    def identity(self) -> tuple[int, int, int]:
        return self.run, self.stream, self.seq


@dataclass(frozen=True, slots=True, kw_only=True)
class LateRecord:
    """One record that stands behind one that was sent after it."""

    run: int
    stream: int
    seq: int
    topic: str
    partition: int
    offset: int
    depth: int
    """how far the greatest seq before it is ahead of its own"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Latencies:
    """Latencies of one topic, partition and minute, in buckets."""

    kind: str
    """`ack`: from send to the outcome; `append`: from send to the broker's append time (LogAppendTime topics only)"""
    topic: str
    partition: int
    minute: int
    """minutes since 1970, by the clock of whoever sent"""
    buckets: dict[int, int]


@dataclass(slots=True, kw_only=True)
class Verdict:
    """What became of everything that was claimed."""

    claims: int = 0
    log_records: int = 0
    statuses: Counter[str] = field(default_factory=Counter)
    """identities by what was claimed of them"""
    counts: Counter[Finding] = field(default_factory=Counter)
    """identities by finding: exact, however many are named"""
    named: list[NamedRecord] = field(default_factory=list)
    """those that something was found of, what is wrong first; at most `most_named`"""
    not_ours: int = 0
    """records of the log without an identity of these runs"""
    unclaimed: int = 0
    """records of runs whose claims are not complete and that nobody claims: no proof of anything"""
    late: int | None = None
    """records out of order; None: order was not judged"""
    deepest: int = 0
    named_late: list[LateRecord] = field(default_factory=list)
    latencies: list[Latencies] = field(default_factory=list)
    timeline: dict[str, dict[int, int]] = field(default_factory=dict)
    """records of the log by topic and second of their timestamp; empty: not asked for"""
    problems: list[str] = field(default_factory=list)
    """why it cannot be judged, or not all of it"""
    seconds: float = 0.0

    @property
    def is_clean(self) -> bool:
        return self.exit_status == CLEAN

    @property
    def is_wrong(self) -> bool:
        return any(self.counts[finding] for finding in WRONG) or bool(self.late)

    @property
    def exit_status(self) -> int:
        """0: clean; 1: something is wrong; 2: it could not be judged, or not all of it."""
        if self.is_wrong:
            return FINDINGS
        return NOT_JUDGED if self.problems else CLEAN

    @property
    def line(self) -> str:
        """The verdict in one line."""
        counted = (Finding.LOST, Finding.DUPLICATE, Finding.PHANTOM)
        parts = [f"{_name(finding)} {self.counts[finding]}" for finding in counted]
        parts.append(f"reordered {'not judged' if self.late is None else self.late}")
        parts.extend(
            f"{_name(finding)} {self.counts[finding]}"
            for finding in Finding
            if finding not in (*counted, Finding.NOT_OURS) and self.counts[finding]
        )
        return ", ".join([*parts, *self.problems])

    def identities(self, finding: Finding) -> list[tuple[int, int, int]]:
        """The records of one finding, by (run, stream, seq)."""
        return sorted(record.identity for record in self.named if finding in record.findings)

    def quantiles(self, kind: str, topic: str | None = None) -> dict[str, float]:
        """Of all, or of one topic, in microseconds."""
        counts: Counter[int] = Counter()
        for latencies in self.latencies:
            if latencies.kind == kind and topic in (None, latencies.topic):
                counts.update(latencies.buckets)
        return quantiles_us(counts)

    def as_json(self) -> dict[str, Any]:
        """The summary, for a file or a CI log."""
        found = {
            _name(finding): {
                "records": self.counts[finding],
                "ids": [list(identity) for identity in self.identities(finding)[:SHOWN]],
            }
            for finding in Finding
            if self.counts[finding]
        }
        return {
            "verdict": {CLEAN: "clean", FINDINGS: "findings", NOT_JUDGED: "not judged"}[self.exit_status],
            "exit_status": self.exit_status,
            "line": self.line,
            "claims": self.claims,
            "claimed": dict(self.statuses),
            "log_records": self.log_records,
            "not_ours": self.not_ours,
            "unclaimed": self.unclaimed,
            "findings": found,
            "reordered": None
            if self.late is None
            else {
                "records": self.late,
                "deepest": self.deepest,
                "ids": [[late.run, late.stream, late.seq] for late in self.named_late[:SHOWN]],
            },
            "latency_us": {
                kind: {"all": self.quantiles(kind)}
                | {f"topic {topic}": self.quantiles(kind, topic) for topic in self.topics(kind)}
                for kind in ("ack", "append")
                if self.topics(kind)
            },
            "problems": self.problems,
            "seconds": round(self.seconds, 3),
        }

    def topics(self, kind: str) -> list[str]:
        """The topics with latencies of this kind."""
        return sorted({latencies.topic for latencies in self.latencies if latencies.kind == kind})


def _name(finding: Finding) -> str:
    return str(finding.name).lower().replace("_", " ")


def names_of(findings: Finding) -> str:
    """All of a record's findings, for people and for files."""
    return ", ".join(_name(finding) for finding in findings)
