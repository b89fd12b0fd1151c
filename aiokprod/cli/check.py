"""What was acknowledged against what is in the log. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from aiokprod.testing.checker import Kind, LogRecord, Outcome, Sent, check_delivery


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
    sends = [Sent(value, "", partition, outcome=Outcome.DELIVERED, settled=1) for partition, value in sent]
    found = [
        LogRecord("", partition, index, value)
        for partition, values in log.items()
        for index, value in enumerate(values)
    ]
    kinds = Counter(finding.kind for finding in check_delivery(sends, found, others_write=True))
    # Acknowledged for one partition and found in another: it is lost where it was looked for.
    return Verdict(kinds[Kind.LOST] + kinds[Kind.WRONG_OFFSET], kinds[Kind.DUPLICATE], kinds[Kind.REORDERED])
