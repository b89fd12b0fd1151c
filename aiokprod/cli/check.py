"""The comparison of acknowledged records with the log, for the demo. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from aiokprod.testing.checker import Kind, LogRecord, Outcome, Sent, check_delivery


@dataclass(frozen=True, slots=True)
class Verdict:
    """The number of wrong records, by kind of error."""

    lost: int
    duplicated: int
    reordered: int

    @property
    def is_clean(self) -> bool:
        return not (self.lost or self.duplicated or self.reordered)

    @property
    def line(self) -> str:
        return f"lost {self.lost}, duplicate {self.duplicated}, reordered {self.reordered}"


def judge_log(sent: Sequence[tuple[int, bytes]], log: Mapping[int, Sequence[bytes]]) -> Verdict:
    """Compare per partition; `sent` is in the order of the sends, and all values are different."""
    sends = [Sent(value, "", partition, outcome=Outcome.DELIVERED, settled=1) for partition, value in sent]
    found = [
        LogRecord("", partition, index, value)
        for partition, values in log.items()
        for index, value in enumerate(values)
    ]
    kinds = Counter(finding.kind for finding in check_delivery(sends, found, others_write=True))
    # A record acknowledged for one partition and found in another counts as lost.
    return Verdict(kinds[Kind.LOST] + kinds[Kind.WRONG_OFFSET], kinds[Kind.DUPLICATE], kinds[Kind.REORDERED])
