"""The judge of a soak. Pure: evidence in, complaints out. (faults: section 3, checks 1 to 6 and 8 to 11)"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Final

from book import DETACHED, GONE, KILLED, Session
from evidence import Complaint, Evidence, Life
from profiles import OPERATIONS
from recovery import SLOW_S, recoveries_of, successes
from values import DAMAGED

from aiokprod.testing.checker import LogRecord, Outcome, Promise, Sent, check_delivery

LATE_S: Final = 1.0  # after the delivery timeout
WINDOW_S: Final = 60.0
LIVELY: Final = 100  # successes in every window in which at most one broker is hurt
STALL_S: Final = 0.25  # of our own computing, in one turn of the loop
STALL_P999_S: Final = 0.05
DIALS_PER_S: Final = 5  # per broker and producer
RATE_WINDOW_S: Final = 10
SHORTEST_WINDOW_S: Final = 0.8 * RATE_WINDOW_S
IDLE_SHARE: Final = 0.1  # of a processor, while every broker is away
GROWTH_BYTES_PER_H: Final = 1_000_000  # of the least memory in use in each window, after the warm-up
CALM_WINDOW_S: Final = 300.0  # longer than any outage: there is a moment in it in which nothing waits
WARM_UP_S: Final = 600.0
SLOPE_FROM_S: Final = 1800.0  # shorter lives tell nothing of a slope
POOLS = ("AnyIO worker thread", "asyncio_")  # the loop's own threads: they wait for its next work, or go when idle
UNSURE_SHARE: Final = 0.001  # of the sends of a patient producer: for so few we may not know what became of them
UNSURE_FROM: Final = 10
PATIENT_S: Final = 60.0  # the shortest delivery timeout that is longer than any fault
COVERED_FROM_S: Final = 180.0  # shorter soaks need not show everything
CANARY: Final = "canary"  # in every password
NOISE = (
    CANARY,
    "never retrieved",
    "was destroyed but it is pending",
    "ResourceWarning",
    "never awaited",
    "Traceback (most recent",
)


def complaints_of(evidence: Evidence) -> list[Complaint]:
    """Return all complaints."""
    found = [*records(evidence)]
    for life in evidence.lives:
        found += [*endings(life), *certainty(life), *manners(life), *silence(life), *stalls(life), *memory(life)]
        found += [*buffers(life), *dropped(life, evidence.log)]
    found += [*liveness(evidence), *dials(evidence), *sessions(evidence), *idleness(evidence), *coverage(evidence)]
    if evidence.uncommitted:
        found.append(
            Complaint("uncommitted", f"{evidence.uncommitted} records are not there for a reader of both kinds")
        )
    for injection, seconds in recoveries_of(evidence):
        if injection.healed + seconds > injection.settled + SLOW_S:
            found.append(
                Complaint("slow", f"{injection.text}: {seconds:.1f} s after its end there was no usual rate yet")
            )
    found += [
        Complaint("bug of the soak", f"{injection.kind}: {injection.failure}")
        for injection in evidence.injections
        if injection.is_bug
    ]
    return found


# Records: checks 1 to 6.


def records(evidence: Evidence, promise: Promise = Promise.EXACTLY_ONCE) -> Iterator[Complaint]:
    """Check for loss, ghosts, duplicates, order, offsets, persistence, resolution, lateness, damage; one partition per key."""
    sends = [sent for life in evidence.lives for sent in _as_known(life)]
    present = {record.identity for record in evidence.log}
    for sent in sends:
        if sent.topic in evidence.volatile and sent.outcome is Outcome.DELIVERED and sent.identity not in present:
            sent.outcome, sent.offset, sent.error = Outcome.POSSIBLY_PERSISTED, None, GONE
    intact: list[LogRecord] = []
    for record in evidence.log:
        if isinstance(record.identity, tuple):
            place = (record.topic, record.partition)
            yield Complaint(DAMAGED, f"{record.topic}-{record.partition}@{record.offset}", place)
        else:
            intact.append(record)
    for finding in check_delivery(sends, intact, promise=promise, lenience_s=LATE_S):
        where = None if finding.topic is None or finding.partition is None else (finding.topic, finding.partition)
        yield Complaint(str(finding.kind), finding.text, where)
    yield from keys(evidence)


def _as_known(life: Life) -> list[Sent]:
    """Return the sends, with unknown outcomes excused: a killed producer reports no more, a stopped one not in time."""
    for sent in life.book.sends:
        if sent.settled == 0 and life.killed_at is not None:
            sent.settled, sent.outcome, sent.due_at = 1, Outcome.POSSIBLY_PERSISTED, None
            sent.error = KILLED
        elif sent.due_at is not None and sent.settled_at > sent.due_at:
            sent.due_at += max(life.away_s(sent.sent_at, sent.settled_at), life.others_s(sent.due_at, sent.settled_at))
    return life.book.sends


def keys(evidence: Evidence) -> Iterator[Complaint]:
    """Check that a key has one partition, from any sender, as long as the topic does not grow."""
    of: dict[tuple[str, int], tuple[int, Sent]] = {}
    for life in evidence.lives:
        for number, key in life.book.keys.items():
            sent = life.book.sends[number]
            if sent.outcome is not Outcome.DELIVERED or sent.partition is None or "growing" in sent.topic:
                continue
            partition, first = of.setdefault((sent.topic, key), (sent.partition, sent))
            if partition != sent.partition:
                yield Complaint("key moved", f"key {key} of {first} is in partition {sent.partition} with {sent}")


def dropped(life: Life, log: Sequence[LogRecord]) -> Iterator[Complaint]:
    """Check that no more unawaited records are missing than failures were reported, and that none is in excess.

    Where none was told, `records` judges each.
    """
    present: set[Hashable] = {record.identity for record in log}
    for session in life.book.sessions:
        told = session.report.get("dropped", {"numbers": []})
        numbers = told["numbers"]
        if not numbers:
            continue
        there = sum(life.book.sends[number].identity in present for number in numbers)
        certain, unsure = told["not persisted"], told["possibly persisted"]
        if not len(numbers) - certain - unsure <= there <= len(numbers) - certain:
            told_of = f"told that {certain} are not in the log and {unsure} may be"
            yield Complaint(
                "dropped", f"{session.name} dropped {len(numbers)} records, {told_of}, and {there} are there"
            )


# A producer's end: checks 6 and 8.


def endings(life: Life) -> Iterator[Complaint]:
    """Check that each life ends in order or is killed by us, and that a closed producer leaves nothing behind."""
    if life.killed_at is None and (life.status != 0 or life.book.ended_at is None):
        yield Complaint("end", f"{life.name} ended with status {life.status}; its last words: {life.log[-500:]!r}")
    for session in life.book.sessions:
        if session.closed_at is None:
            if life.killed_at is None:
                yield Complaint("end", f"{session.name} was never closed")
            continue
        report = session.report
        if report["buffer_used_bytes"]:
            yield Complaint(
                "memory", f"{session.name} was closed with {report['buffer_used_bytes']} bytes in its buffer"
            )
        for leak in report["leaks"]:
            if not any(pool in leak for pool in POOLS):
                yield Complaint("leak", f"{session.name}: {leak}")
        if report["undelivered"] and not report["hasty"]:
            yield Complaint("end", f"{session.name} had {report['undelivered']} records left when it was closed")


def certainty(life: Life) -> Iterator[Complaint]:
    """Check that a producer with enough time knows of nearly all records whether they are in the log."""
    if not is_patient(life):
        return
    unsure = [sent for sent in life.book.sends if is_unsure(sent)]
    if len(unsure) > max(UNSURE_FROM, UNSURE_SHARE * len(life.book.sends)):
        yield Complaint("unsure", f"{life.name} does not know of {len(unsure)} records; the first is {unsure[0]}")


def is_patient(life: Life) -> bool:
    """Return whether its delivery timeout is longer than any fault."""
    return all(session.settings["delivery_timeout_ms"] >= PATIENT_S * 1000 for session in life.book.sessions)


def is_unsure(sent: Sent) -> bool:
    """Return whether the producer said that the record may be in the log; a missing outcome does not count."""
    return sent.outcome is Outcome.POSSIBLY_PERSISTED and sent.error not in (DETACHED, KILLED, GONE)


def memory(life: Life) -> Iterator[Complaint]:
    """Check that memory in use, sampled when nothing waits, does not grow. Resident memory is that of the worst outage."""
    slope = growth_bytes_per_h(life)
    if slope is not None and slope > GROWTH_BYTES_PER_H:
        yield Complaint("memory", f"{life.name} grows by {slope / 1e6:.1f} MB an hour")


def buffers(life: Life) -> Iterator[Complaint]:
    """Check that a producer's buffer never holds more than its limit."""
    for session in life.book.sessions:
        limit = session.settings.get("buffer_memory")
        closed_at = float("inf") if session.closed_at is None else session.closed_at
        used = [
            sample["buffer_used_bytes"]
            for at, sample in life.book.samples
            if session.opened_at <= at <= closed_at and "buffer_used_bytes" in sample
        ]
        if limit is not None and used and max(used) > limit:
            yield Complaint("memory", f"{session.name} had {max(used):.0f} bytes in a buffer of {limit}")


def growth_bytes_per_h(life: Life, name: str = "in_use") -> float | None:
    """Return the slope of the minima of windows after the warm-up (least squares); None if the life was too short."""
    samples = [(at, sample[name]) for at, sample in life.book.samples if name in sample]
    if not samples or samples[-1][0] - samples[0][0] < SLOPE_FROM_S:
        return None
    began = samples[0][0] + WARM_UP_S
    least: dict[int, tuple[float, float]] = {}
    for at, value in samples:
        if at > began:
            window = int((at - began) // CALM_WINDOW_S)
            least[window] = min(least.get(window, (at, value)), (at, value), key=lambda point: point[1])
    points = list(least.values())
    mean_x = sum(x for x, _ in points) / len(points)
    mean_y = sum(y for _, y in points) / len(points)
    spread = sum((x - mean_x) ** 2 for x, _ in points)
    return 3600 * sum((x - mean_x) * (y - mean_y) for x, y in points) / spread


# Manners, silence, the loop: checks 9 to 11.


def manners(life: Life) -> Iterator[Complaint]:
    """Check that metadata is not requested more often than the backoff of the producer allows."""
    for session, worst in metadata_per_s(life):
        if worst > most_metadata_per_s(session.settings):
            yield Complaint("storm", f"{life.name} asked for metadata {worst:.1f} times a second for {RATE_WINDOW_S} s")


def metadata_per_s(life: Life) -> Iterator[tuple[Session, float]]:
    """Yield each producer with its highest rate of metadata requests, without one request per topic that is new to it.

    Without those: the first record of a topic waits for its partitions, and must not wait longer because other topics
    were new just before.
    """
    first_uses: dict[object, dict[str, float]] = {}
    for sent in life.book.sends:
        first_uses.setdefault(sent.session, {}).setdefault(sent.topic, sent.sent_at)
    for session in life.book.sessions:
        closed_at = float("inf") if session.closed_at is None else session.closed_at
        uses = sorted(first_uses.get(session.name, {}).values())
        within = [
            (at, sample["metadata_refreshes"] - bisect_left(uses, at))
            for at, sample in life.book.samples
            if session.opened_at <= at <= closed_at and "metadata_refreshes" in sample
        ]
        yield session, _worst_rate([(session.opened_at, 0.0), *within])


def most_metadata_per_s(settings: Mapping[str, float]) -> float:
    """Return the highest rate that the backoff of a producer allows: 2.3 per second with the default of 100 ms.

    Requests in a row move apart, up to `retry_backoff_max_ms`, and are close again after a pause or an outage of that. So
    the most come from rows that end where the next request would wait for long; a window has up to one row more than its
    length tells. The jitter is 20 %.
    """
    least_s, most_s = settings.get("retry_backoff_ms", 100) / 1000, settings.get("retry_backoff_max_ms", 1000) / 1000
    waits = [0.8 * min(least_s * 2**number, most_s) for number in range(10)]
    return max(count / (sum(waits[:count]) + most_s) + count / SHORTEST_WINDOW_S for count in range(1, len(waits) + 1))


def dials(evidence: Evidence) -> Iterator[Complaint]:
    """Check that all producers together do not dial brokers too often."""
    clients = len({life.client for life in evidence.lives})
    for node in sorted({node for _, counts in evidence.dials for node in counts}):
        worst = _worst_rate([(at, counts.get(node, 0)) for at, counts in evidence.dials])
        if worst > DIALS_PER_S * clients:
            yield Complaint("storm", f"broker {node} was dialled {worst:.1f} times a second for {RATE_WINDOW_S} s")


def idleness(evidence: Evidence) -> Iterator[Complaint]:
    """Check that a workload computes little while no broker is up."""
    for share in cpu_while_all_down(evidence):
        if share > IDLE_SHARE:
            yield Complaint("busy", f"a workload took {share:.0%} of a processor while every broker was away")


def cpu_while_all_down(evidence: Evidence) -> list[float]:
    """Return the share of a processor that a workload took in each outage of all brokers, after its first two seconds."""
    found = []
    for injection in evidence.injections:
        if not injection.kind.endswith(" all"):
            continue
        for life in evidence.lives:
            within = [
                (at, each["cpu_s"])
                for at, each in life.book.samples
                if injection.began + 2.0 < at < min(injection.healed, injection.began + 30.0)
            ]
            if len(within) > 3:
                found.append((within[-1][1] - within[0][1]) / (within[-1][0] - within[0][0]))
    return found


def sessions(evidence: Evidence) -> Iterator[Complaint]:
    """Check that clients with a login log in repeatedly; otherwise the soak has not shown what it must show."""
    if evidence.session_s is None:
        return
    least = (evidence.ended - evidence.began) / evidence.session_s / 2  # half of the time it may be away
    if evidence.authentications < least:
        yield Complaint("bug of the soak", f"{evidence.authentications} logins are less than {least:.0f}")


def coverage(evidence: Evidence) -> Iterator[Complaint]:
    """Check that all mixed operations were done and a small buffer was full; otherwise the soak has not shown what it must."""
    done: set[str] = set()
    delivered: set[str] = set()
    was_full = False
    for life in evidence.lives:
        for number, operation in life.book.operations.items():
            sent = life.book.sends[number]
            done.add(operation)
            was_full = was_full or sent.error == "BufferFullError"
            if sent.outcome is Outcome.DELIVERED:
                delivered.add(operation)
    if not done or evidence.ended - evidence.began < COVERED_FROM_S:
        return
    for operation in sorted(OPERATIONS - {"cancelled"} - delivered):
        yield Complaint("bug of the soak", f"nothing that was {operation} was delivered")
    if "cancelled" not in done:
        yield Complaint("bug of the soak", "no handle was cancelled")
    if not was_full:
        yield Complaint("bug of the soak", "no record was refused for want of room")


def _worst_rate(counter: Sequence[tuple[float, float]]) -> float:
    """Return the largest growth of a counter in any window, per second."""
    worst, first = 0.0, 0
    for at, count in counter:
        while at - counter[first][0] > RATE_WINDOW_S:
            first += 1
        begin, before = counter[first]
        if at - begin >= SHORTEST_WINDOW_S:
            worst = max(worst, (count - before) / (at - begin))
    return worst


def silence(life: Life) -> Iterator[Complaint]:
    """Check that the log has nothing that a user need not read."""
    for line in life.log.splitlines():
        if any(noise in line for noise in NOISE):
            yield Complaint("noise", f"{life.name}: {line[:300]}")


def stalls(life: Life) -> Iterator[Complaint]:
    """Check that the loop turns. Only our own computing counts, not the use of the processors by others."""
    own = own_stalls(life)
    for at, cpu_s in own:
        if cpu_s > STALL_S:
            yield Complaint("stall", f"{life.name} computed for {cpu_s:.3f} s in one turn of its loop, at {at:.1f}")
    turns = len(life.book.samples) * 100
    if turns and sum(cpu_s > STALL_P999_S for _, cpu_s in own) > max(1, turns / 1000):
        yield Complaint("stall", f"{life.name}: more than one turn in a thousand took over {STALL_P999_S} s")


def own_stalls(life: Life) -> list[tuple[float, float]]:
    """Return (when, seconds of our own computing) of late turns, except where we kept the loop from turning."""
    return [(at, cpu) for at, late, cpu in life.book.stalls if not life.away_s(at - late - 0.1, at + 0.1)]


def liveness(evidence: Evidence) -> Iterator[Complaint]:
    """Check that records are acknowledged all the time, as long as a majority of the brokers lives."""
    times = successes(evidence.lives)
    hurt = [(injection.began, injection.settled) for injection in evidence.injections if injection.hurts_majority]
    at = evidence.began
    while at + WINDOW_S <= evidence.ended:
        if not any(begin < at + WINDOW_S and end > at for begin, end in hurt):
            count = bisect_left(times, at + WINDOW_S) - bisect_left(times, at)
            if count < LIVELY:
                yield Complaint(
                    "dead", f"{count} records were acknowledged in the minute from {at - evidence.began:.0f} s"
                )
        at += WINDOW_S / 4
