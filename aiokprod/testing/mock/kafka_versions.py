"""The Kafka releases that a mock can imitate: the API versions that they advertise, and their transaction rules.

`MockCluster(kafka_version=...)` names one. The ranges of older releases are those of the `ApiKeys` of kafka-clients
2.1.1, 2.8.2 and 3.9.1; the newest release offers what our codecs know. What is offered is served: where the codecs begin
later than the release, so does the mock. One exception is Kafka's own: from 4.0 on Produce is offered from version 0 and
hangs up on anything below 3, as real brokers do (some clients look at the lower bound only).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

Ranges: TypeAlias = dict[int, tuple[int, int]]


@dataclass(frozen=True, slots=True)
class KafkaRelease:
    """One release. `ranges` by API key; None: as far as the codecs go."""

    ranges: Mapping[int, tuple[int, int]] | None
    transaction_version: int
    verifies_transactions: bool
    """Whether a first write is checked with the coordinator, from 3.6 on (KIP-890); before, it opens a transaction that
    is never ended."""

    looks_at_epochs: bool
    """Whether a partition, before it asks the coordinator about a first write, looks at its epoch: an older one than it
    knows is refused at once, a newer one is no part of the transaction that is open there. Not in 3.9."""

    has_new_groups: bool
    """Whether groups are kept by the coordinator that came with KIP-848 (KIP-848 itself included), from 4.0 on."""

    topic_defaults: Mapping[str, str] = field(default_factory=dict[str, str])
    """Options of topics whose default was another one then."""

    waits_for_min_insync: bool = True
    """Whether the high watermark waits for min.insync replicas (KIP-966); before, a batch whose in-sync set has become
    too small is answered 20. broker: 6.3c"""

    def advertised(self, newest: Ranges, lowest: Mapping[int, int]) -> Ranges:
        """Return the ranges of the served APIs that a broker of this release advertises.

        Args:
            newest: the ranges that the newest release advertises.
            lowest: from which version on each API is served.
        """
        if self.ranges is None:
            return dict(newest)
        return {
            key: (max(self.ranges[key][0], lowest[key]), self.ranges[key][1]) for key in newest if key in self.ranges
        }


def _from_zero(highest: Mapping[int, int]) -> Ranges:
    return {key: (0, high) for key, high in highest.items()}


_2_1: Final = _from_zero(
    {
        0: 7, 1: 10, 2: 4, 3: 7, 8: 6, 9: 5, 10: 2, 11: 3, 12: 2, 13: 2, 14: 2, 15: 2, 16: 2, 17: 1, 18: 2, 19: 3, 20: 3,
        21: 1, 22: 1, 23: 2, 24: 1, 25: 1, 26: 1, 28: 2, 32: 2, 33: 1, 36: 0, 37: 1, 42: 1,
    }
)  # fmt: skip

_2_8: Final = _from_zero(
    {
        0: 9, 1: 12, 2: 6, 3: 11, 8: 8, 9: 7, 10: 3, 11: 7, 12: 4, 13: 4, 14: 5, 15: 5, 16: 4, 17: 1, 18: 3, 19: 7, 20: 6,
        21: 2, 22: 4, 23: 4, 24: 3, 25: 3, 26: 3, 27: 1, 28: 3, 32: 4, 33: 2, 36: 2, 37: 3, 42: 2, 43: 2, 44: 1, 45: 0, 46: 0,
        47: 0, 48: 1, 49: 1, 57: 0, 60: 0, 61: 0,
    }
)  # fmt: skip

_3_9: Final = _from_zero(
    {
        0: 11, 1: 17, 2: 9, 3: 12, 8: 9, 9: 9, 10: 6, 11: 9, 12: 4, 13: 5, 14: 5, 15: 5, 16: 5, 17: 1, 18: 4, 19: 7, 20: 6,
        21: 2, 22: 5, 23: 4, 24: 5, 25: 4, 26: 4, 27: 1, 28: 4, 32: 4, 33: 2, 36: 2, 37: 3, 42: 2, 43: 2, 44: 1, 45: 0, 46: 0,
        47: 0, 48: 1, 49: 1, 55: 2, 57: 1, 60: 1, 61: 0, 65: 0, 66: 1, 75: 0,
    }
)  # fmt: skip

_ANY_TIMESTAMP: Final = {"message.timestamp.after.max.ms": str(2**63 - 1)}
_ANY_DIFFERENCE: Final = {"message.timestamp.difference.max.ms": str(2**63 - 1)}
"""One option for both directions until 3.6 (KIP-937); an hour ahead at most from 4.0 on (KIP-1030). broker: 13.7"""

RELEASES: Final[dict[str, KafkaRelease]] = {
    "2.1": KafkaRelease(_2_1, 0, False, False, False, _ANY_DIFFERENCE, waits_for_min_insync=False),
    "2.8": KafkaRelease(_2_8, 0, False, False, False, _ANY_DIFFERENCE, waits_for_min_insync=False),
    "3.9": KafkaRelease(_3_9, 0, True, False, False, _ANY_TIMESTAMP),
    "4.3": KafkaRelease(None, 2, True, True, True),
}

NEWEST: Final = "4.3"

TRANSACTION_VERSION: Final = "transaction.version"
"""The finalized feature by which clients choose versions of transactional requests. broker: 0, item 7"""


def release_of(kafka_version: str) -> KafkaRelease:
    """Return the release of `"4.3"` or `"4.3.1"`. Raises ValueError with the known releases."""
    release = RELEASES.get(".".join(kafka_version.split(".")[:2]))
    if release is None:
        raise ValueError(f"the mock knows Kafka {', '.join(RELEASES)}; not {kafka_version!r}")
    return release


def transaction_version_of(release: KafkaRelease, asked: int | None) -> int:
    """Return the transaction.version of a cluster; ValueError if the release has no such version."""
    if asked is None:
        return release.transaction_version
    if asked not in (0, 1, 2) or (asked and not release.transaction_version):
        raise ValueError(f"this release of Kafka has no transaction version {asked}")
    return asked
