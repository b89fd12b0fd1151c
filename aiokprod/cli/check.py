"""What was acknowledged against what is in the log. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise


@dataclass(frozen=True, slots=True)
class Verdict:
    """How many records are wrong, and how."""

    lost: int
    duplicated: int
    reordered: int

    @property
    def is_clean(self) -> bool:
        return not (self.lost or self.duplicated or self.reordered)

    @property
    def line(self) -> str:
        return f"lost {self.lost}, duplicated {self.duplicated}, reordered {self.reordered}"


def judge_log(sent: Sequence[tuple[int, bytes]], log: Mapping[int, Sequence[bytes]]) -> Verdict:
    """Compare per partition; `sent` is in the order of the sends, each value unlike every other."""
    by_partition: dict[int, list[bytes]] = {}
    for partition, value in sent:
        by_partition.setdefault(partition, []).append(value)
    lost = duplicated = reordered = 0
    for partition, values in by_partition.items():
        found = log.get(partition, ())
        counts = Counter(found)
        lost += sum(1 for value in values if not counts[value])
        duplicated += sum(count - 1 for count in counts.values() if count > 1)
        place = {value: index for index, value in reversed(list(enumerate(found)))}
        places = [place[value] for value in values if value in place]
        reordered += sum(1 for before, after in pairwise(places) if after < before)
    return Verdict(lost, duplicated, reordered)
