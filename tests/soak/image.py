"""The judge of the copiers. Pure: what went in, what came out, and how the processes ended. (faults: section 3, check 7)

The output, as readers of committed records see it, is exactly the image of the input: each record once, in its partition, in
its order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from evidence import Complaint
from verdict import NOISE

SHOWN = 5  # offsets of one complaint
LEAST = 20  # transactions of all copiers together, from `COVERED_FROM_S` on


@dataclass(slots=True, kw_only=True)
class CopierLife:
    """One life of a copier's process."""

    name: str
    lines: list[str]  # of its book
    log: str
    is_killed: bool = False
    status: int | None = 0


@dataclass(slots=True, kw_only=True)
class Copies:
    """The input and the output of the copiers; offsets of the input by partition, in the order of the log."""

    given: Mapping[int, Sequence[int]]
    made: Mapping[int, Sequence[tuple[int, int]]]  # by partition: (partition, offset) of the input
    lives: list[CopierLife]
    open_partitions: list[int] = field(default_factory=list)  # a transaction is left open there
    seconds: float = 0.0

    def counts(self) -> Counter[str]:
        """Return how many transactions ended in which way: o committed, a aborted, u not known."""
        return Counter(line[:1] for life in self.lives for line in life.lines)

    def figures(self) -> dict[str, float | str]:
        """Return the figures by name."""
        counts = self.counts()
        return {
            "records copied in transactions": sum(map(len, self.made.values())),
            "transactions committed": counts["o"],
            "transactions aborted": counts["a"],
            "transactions whose end was not known": counts["u"],
            "lives of copiers": len(self.lives),
        }


def complaints_of_copies(copies: Copies, covered_from_s: float) -> Iterator[Complaint]:
    """Check that the output is the image of the input, and that each copier ended as it was told to."""
    for partition, offsets in copies.given.items():
        yield from _image(partition, offsets, copies.made.get(partition, ()))
    for partition in copies.open_partitions:
        yield Complaint("left open", f"a transaction is left open in partition {partition} of the copy")
    for life in copies.lives:
        if not life.is_killed and life.status != 0:
            yield Complaint("end", f"{life.name} ended with status {life.status}; its last words: {life.log[-500:]!r}")
        for line in life.log.splitlines():
            if any(noise in line for noise in NOISE):
                yield Complaint("noise", f"{life.name}: {line[:300]}")
    if copies.seconds >= covered_from_s:
        counts = copies.counts()
        if counts["o"] < LEAST or not counts["a"]:
            yield Complaint("bug of the soak", f"too few transactions were ended: {dict(counts)}")


def _image(partition: int, given: Sequence[int], made: Sequence[tuple[int, int]]) -> Iterator[Complaint]:
    place = ("soak-copy", partition)
    strangers = [found for found in made if found[0] != partition]
    offsets = [offset for at, offset in made if at == partition]
    counts = Counter(offsets)
    missing = [offset for offset in given if not counts[offset]]
    twice = [offset for offset, count in counts.items() if count > 1]
    ghosts = sorted(counts.keys() - set(given))
    for check, wrong in (("lost", missing), ("duplicate", twice), ("ghost", ghosts), ("ghost", strangers)):
        if wrong:
            text = f"{len(wrong)} copies of partition {partition} are a {check}: {wrong[:SHOWN]}"
            yield Complaint(f"copy {check}", text, place)
    if not twice and (back := [after for before, after in pairwise(offsets) if after < before]):
        text = f"partition {partition} has {len(back)} copies behind later ones: {back[:SHOWN]}"
        yield Complaint("copy reordered", text, place)
