"""The figures of a soak: what was done, how fast, how soon it was well again. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

from book import DETACHED, GONE, KILLED, QUIET
from evidence import Done, Evidence
from recovery import recoveries_of
from verdict import cpu_while_all_down, growth_bytes_per_h, is_patient, is_unsure, metadata_per_s, own_stalls

from aiokprod.testing.checker import Outcome


def figures_of(evidence: Evidence) -> dict[str, float | str]:
    """Return the figures by name."""
    sends = [sent for life in evidence.lives for sent in life.book.sends]
    outcomes = Counter(sent.outcome for sent in sends)
    unsure = [sent for sent in sends if sent.outcome is Outcome.POSSIBLY_PERSISTED]
    latencies = sorted(
        sent.settled_at - sent.sent_at for sent in sends if sent.outcome is Outcome.DELIVERED and sent.error != QUIET
    )
    stalls = sorted(cpu for life in evidence.lives for _, cpu in own_stalls(life))
    recoveries = sorted(seconds for _, seconds in recoveries_of(evidence))
    found: dict[str, float | str] = {
        "records sent": len(sends),
        "acknowledged": outcomes[Outcome.DELIVERED],
        "failed, certainly not in the log": outcomes[Outcome.NOT_PERSISTED],
        "possibly in the log, as told": sum(is_unsure(sent) for sent in unsure),
        "possibly in the log, as told by those with 120 s to deliver": sum(
            is_unsure(sent) for life in evidence.lives if is_patient(life) for sent in life.book.sends
        ),
        "possibly in the log: handle cancelled": sum(sent.error == DETACHED for sent in unsure),
        "possibly in the log: producer killed": sum(sent.error == KILLED for sent in unsure),
        "acknowledged, then gone with a topic that was deleted": sum(sent.error == GONE for sent in unsure),
        "records read back": len(evidence.log),
        "producers opened": sum(len(life.book.sessions) for life in evidence.lives),
        "client lives": len(evidence.lives),
        "faults": len(evidence.injections),
        "faults that failed themselves": sum(injection.failure is not None for injection in evidence.injections),
        "faults that met nothing": sum(injection.met == 0 for injection in evidence.injections),
        "kinds of faults": len({injection.kind for injection in evidence.injections}),
        "connections": sum(evidence.dials[-1][1].values()) if evidence.dials else 0,
        "logins": evidence.authentications,
        "acknowledged per second": round(outcomes[Outcome.DELIVERED] / max(1.0, evidence.ended - evidence.began), 1),
        "batches sent again": _total(evidence, "batches_resent"),
        "chaser rounds": _total(evidence, "chaser_rounds"),
        "epoch bumps": _total(evidence, "epoch_bumps"),
        "throttled by brokers, s": round(_total(evidence, "throttle_seconds"), 1),
        "waited for room in a buffer, s": round(_total(evidence, "waited_s"), 1),
    }
    for name, share in (("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999)):
        found[f"latency {name} s"] = round(_at(latencies, share), 3)
    found["latency worst s"] = round(latencies[-1], 3) if latencies else 0
    found["longest own computing in one turn of a loop s"] = round(stalls[-1], 3) if stalls else 0
    found["back to 90 % of the rate after a fault, median s"] = round(_at(recoveries, 0.5), 1)
    found["back to 90 % of the rate after a fault, worst s"] = round(recoveries[-1], 1) if recoveries else 0
    found |= _operations(evidence)
    if idle := cpu_while_all_down(evidence):
        found["processor of a workload while every broker was away, worst share"] = round(max(idle), 3)
    storms = max((rate for life in evidence.lives for _, rate in metadata_per_s(life)), default=0.0)
    found["requests for metadata per second of a producer, worst 10 s"] = round(storms, 2)
    slopes = [slope for life in evidence.lives if (slope := growth_bytes_per_h(life)) is not None]
    if slopes:
        found["memory in use, MB per hour"] = round(max(slopes) / 1e6, 2)
    resident = [slope for life in evidence.lives if (slope := growth_bytes_per_h(life, "rss")) is not None]
    if resident:
        found["resident memory, MB per hour"] = round(max(resident) / 1e6, 2)
    return found


def _operations(evidence: Evidence) -> dict[str, str]:
    """Return the operations of the mixed workload by way of sending: how many, and how they ended."""
    counts: dict[str, Counter[str]] = {}
    for life in evidence.lives:
        for number, operation in life.book.operations.items():
            sent = life.book.sends[number]
            told = sent.error if sent.outcome is not Outcome.DELIVERED or sent.error == GONE else str(sent.outcome)
            counts.setdefault(operation, Counter())[told] += 1
    return {
        f"records {operation}": f"{of.total()}: " + ", ".join(f"{told} {count}" for told, count in of.most_common())
        for operation, of in sorted(counts.items())
    }


def throttled_ms(evidence: Evidence, injection: Done) -> int:
    """Return how long brokers told a fault's workload to wait, from its begin until a second after its end."""
    total = 0.0
    for life in evidence.lives:
        if life.client == injection.client:
            within = [
                sample.get("throttle_seconds", 0.0)
                for at, sample in life.book.samples
                if injection.began - 1.0 < at < injection.settled + 2.0
            ]
            total += sum(max(0.0, now - before) for before, now in pairwise(within))
    return round(1000 * total)


def _total(evidence: Evidence, name: str) -> float:
    """Return by how much a counter grew over all sessions."""
    total = 0.0
    for life in evidence.lives:
        before = 0.0
        for _, sample in life.book.samples:
            now = sample.get(name, 0.0)
            total += now - before if now >= before else now
            before = now
    return total


def _at(ordered: Sequence[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))] if ordered else 0.0
