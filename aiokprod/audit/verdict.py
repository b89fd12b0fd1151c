"""`Verdict`: the result of an audit as values; its line, its JSON, its exit status. Pure."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Final

from aiokprod.audit.findings import WRONG, Finding
from aiokprod.audit.latency import quantiles_us
from aiokprod.claims.rows import Status

CLEAN, FINDINGS, NOT_JUDGED = 0, 1, 2
SHOWN: Final = 20  # identities in the JSON summary, per finding


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedRecord:
    """One record with findings.

    Attributes:
        run, stream, seq: identity of the record.
        topic: topic name.
        findings: all findings about it.
        copies: number of times that it is in the log.
    """

    run: int
    stream: int
    seq: int
    topic: str
    findings: Finding
    status: Status | None
    """the claim; None if there is none"""
    told: tuple[int, int] | None
    """partition and offset that were acknowledged"""
    places: tuple[tuple[int, int], ...]
    """partitions and offsets of its copies"""
    copies: int

    @property
    def identity(self) -> tuple[int, int, int]:
        """Run, stream and seq: what the identity header of the record says."""
        return self.run, self.stream, self.seq


@dataclass(frozen=True, slots=True, kw_only=True)
class LateRecord:
    """One record that follows a record which was sent after it.

    Attributes:
        run, stream, seq: identity of the record.
        topic, partition, offset: its place in the log.
    """

    run: int
    stream: int
    seq: int
    topic: str
    partition: int
    offset: int
    depth: int
    """the greatest seq before it minus its own"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Latencies:
    """Latencies of one topic, partition and minute, in buckets.

    Attributes:
        topic, partition: the place of the records.
        buckets: number of records by bucket: `floor(16 * log2(microseconds))`, -1 for a negative latency (two clocks differ).
    """

    kind: str
    """`ack`: from send to the outcome; `append`: from send to the broker's append time (LogAppendTime topics only)"""
    topic: str
    partition: int
    minute: int
    """minutes since 1970, by the sender's clock"""
    buckets: dict[int, int]


@dataclass(slots=True, kw_only=True)
class Verdict:
    """The result of an audit.

    Attributes:
        claims: number of claims.
        log_records: number of records in the log.
        deepest: greatest `depth` of a record out of order.
        named_late: records out of order; at most `most_named`.
        latencies: latencies by kind, topic, partition and minute.
        seconds: duration of the audit.
    """

    claims: int = 0
    log_records: int = 0
    statuses: Counter[str] = field(default_factory=Counter[str])
    """number of identities by their claim"""
    counts: Counter[Finding] = field(default_factory=Counter[Finding])
    """number of identities by finding: exact, however many are named"""
    named: list[NamedRecord] = field(default_factory=list[NamedRecord])
    """records with findings, wrong ones first; at most `most_named`"""
    not_ours: int = 0
    """records of the log without an identity of the audited runs"""
    unclaimed: int = 0
    """unclaimed records of runs whose claims are incomplete: they prove nothing"""
    late: int | None = None
    """records out of order; None if order was not judged"""
    deepest: int = 0
    named_late: list[LateRecord] = field(default_factory=list[LateRecord])
    latencies: list[Latencies] = field(default_factory=list[Latencies])
    timeline: dict[str, dict[int, int]] = field(default_factory=dict[str, dict[int, int]])
    """number of records by topic and second of their timestamp; empty if not requested"""
    problems: list[str] = field(default_factory=list[str])
    """why the audit is not complete"""
    seconds: float = 0.0

    @property
    def is_clean(self) -> bool:
        """True if nothing is wrong and everything could be judged."""
        return self.exit_status == CLEAN

    @property
    def is_wrong(self) -> bool:
        """True if a record has one of the findings in `WRONG`, or is out of order."""
        return any(self.counts[finding] for finding in WRONG) or bool(self.late)

    @property
    def exit_status(self) -> int:
        """0: clean; 1: something is wrong; 2: the audit could not be made, or not completely."""
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
        """Return the named records with one finding, by (run, stream, seq).

        Args:
            finding: the finding.
        """
        return sorted(record.identity for record in self.named if finding in record.findings)

    def quantiles(self, kind: str, topic: str | None = None) -> dict[str, float]:
        """Return the quantiles of the latencies of one kind, in microseconds; empty if there are none.

        Args:
            kind: "ack" or "append", see `Latencies`.
            topic: topic name; None is all topics.
        """
        counts: Counter[int] = Counter()
        for latencies in self.latencies:
            if latencies.kind == kind and topic in (None, latencies.topic):
                counts.update(latencies.buckets)
        return quantiles_us(counts)

    def as_json(self) -> dict[str, Any]:
        """Return the summary, for a file or a CI log."""
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
        """Return the topics with latencies of one kind.

        Args:
            kind: "ack" or "append", see `Latencies`.
        """
        return sorted({latencies.topic for latencies in self.latencies if latencies.kind == kind})


def _name(finding: Finding) -> str:
    return str(finding.name).lower().replace("_", " ")


def names_of(findings: Finding) -> str:
    """Return all of a record's findings, for people and for files."""
    return ", ".join(_name(finding) for finding in findings)
