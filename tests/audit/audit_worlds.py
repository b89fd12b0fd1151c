"""Made-up worlds for the audit: producers that told the truth, and then trouble that is planted, each kind by name."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace

from audit_reference import ClaimRow, LogRow

from aiokprod.audit import Finding
from aiokprod.claims import Status

PARTITIONS = 3
TOPICS = ("orders", "payments")


@dataclass(slots=True)
class World:
    """Both sides of an audit, and what was planted in them."""

    claims: list[ClaimRow] = field(default_factory=list)
    log: list[LogRow] = field(default_factory=list)
    planted: dict[Finding, set[tuple[int, int, int]]] = field(default_factory=dict)
    swapped: set[tuple[int, int, int]] = field(default_factory=set)

    def plant(self, finding: Finding, row: ClaimRow | LogRow) -> None:
        assert row.run is not None
        self.planted.setdefault(finding, set()).add((row.run, row.stream, row.seq))


def truthful(run: int, records: int, seed: int, status: Status = Status.ACKED) -> World:
    """Return a world of two streams that write to two topics, where every claim is true."""
    draw = random.Random(seed)
    world = World()
    ends: dict[tuple[str, int], int] = {}
    for seq in range(records):
        for stream in (0, 1):
            key = draw.choice((None, b"a", b"b", b"c"))
            topic = draw.choice(TOPICS)
            partition = draw.randrange(PARTITIONS) if key is None else key[0] % PARTITIONS
            offset = ends.get((topic, partition), 0)
            ends[topic, partition] = offset + 1
            world.claims.append(ClaimRow(run, stream, seq, topic, key, partition, offset, status))
            world.log.append(LogRow(run, stream, seq, topic, key, partition, offset))
    return world


def end_of(world: World, topic: str, partition: int) -> int:
    """Return the next offset of a partition."""
    return 1 + max((r.offset for r in world.log if (r.topic, r.partition) == (topic, partition)), default=-1)


def trouble(world: World, draw: random.Random, kind: str) -> None:
    """Plant one trouble of this kind, at a record that has none."""
    used = {identity for identities in world.planted.values() for identity in identities} | world.swapped
    free = [i for i, r in enumerate(world.log) if r.run not in (None, -77) and (r.run, r.stream, r.seq) not in used]
    if not free:
        return
    at = draw.choice(free)
    record = world.log[at]
    claim_at = next(
        i for i, c in enumerate(world.claims) if (c.run, c.stream, c.seq) == (record.run, record.stream, record.seq)
    )
    claim = world.claims[claim_at]
    if kind == "lost":
        del world.log[at]
        world.plant(Finding.LOST, record)
    elif kind == "duplicate":
        for _ in range(draw.choice((1, 1, 2))):
            world.log.append(replace(record, offset=end_of(world, record.topic, record.partition)))
        world.plant(Finding.DUPLICATE, record)
    elif kind == "phantom":
        seq = 10_000 + len(world.planted.get(Finding.PHANTOM, ()))
        stranger = replace(record, stream=9, seq=seq)
        copies = draw.choice((1, 1, 2))
        for _ in range(copies):
            world.log.append(replace(stranger, offset=end_of(world, record.topic, record.partition)))
        world.plant(Finding.PHANTOM, stranger)
        if copies > 1:
            world.plant(Finding.DUPLICATE, stranger)
    elif kind == "contradicted":
        world.claims[claim_at] = replace(claim, status=Status.NOT_PERSISTED, offset=-1)
        world.plant(Finding.CONTRADICTED, record)
    elif kind == "misplaced":
        world.claims[claim_at] = replace(claim, offset=claim.offset + 5_000)
        world.plant(Finding.MISPLACED, record)
    elif kind == "altered":
        world.log[at] = replace(record, key=b"another")
        world.plant(Finding.ALTERED, record)
    elif kind == "unknown present":
        world.claims[claim_at] = replace(claim, status=Status.POSSIBLY_PERSISTED, offset=-1)
        world.plant(Finding.UNKNOWN_PRESENT, record)
    elif kind == "unknown absent":
        del world.log[at]
        world.claims[claim_at] = replace(claim, status=Status.POSSIBLY_PERSISTED, offset=-1)
        world.plant(Finding.UNKNOWN_ABSENT, record)
    elif kind == "repeated":
        world.claims[claim_at] = replace(claim, status=Status.ACKED_AT_LEAST_ONCE)
        world.log.append(replace(record, offset=end_of(world, record.topic, record.partition)))
        world.plant(Finding.REPEATED, record)
    elif kind == "stranger":
        world.log.append(replace(record, run=None, offset=end_of(world, record.topic, record.partition)))
    elif kind == "other run":
        world.log.append(replace(record, run=-77, offset=end_of(world, record.topic, record.partition)))
    elif kind == "swap":
        _swap(world, at, used)
    else:
        raise AssertionError(kind)


KINDS = (
    "lost", "duplicate", "phantom", "contradicted", "misplaced", "altered", "unknown present", "unknown absent",
    "repeated", "stranger", "other run", "swap",
)  # fmt: skip


def _swap(world: World, at: int, used: set[tuple[int, int, int]]) -> None:
    """Exchange a record with the next one of its key, in the claims too, so that only the order is wrong."""
    record = world.log[at]
    line = [
        (i, r)
        for i, r in enumerate(world.log)
        if (r.run, r.stream, r.topic, r.partition, r.key)
        == (record.run, record.stream, record.topic, record.partition, record.key)
        and r.seq > record.seq
    ]
    if not line:
        return
    other_at, other = min(line, key=lambda pair: pair[1].seq)
    if (other.run, other.stream, other.seq) in used:
        return
    world.log[at] = replace(record, offset=other.offset)
    world.log[other_at] = replace(other, offset=record.offset)
    for i, claim in enumerate(world.claims):
        if (claim.run, claim.stream) == (record.run, record.stream):
            if claim.seq == record.seq:
                world.claims[i] = replace(claim, offset=other.offset)
            elif claim.seq == other.seq:
                world.claims[i] = replace(claim, offset=record.offset)
    assert record.run is not None
    assert other.run is not None
    world.swapped.add((record.run, record.stream, record.seq))
    used.add((other.run, other.stream, other.seq))
