"""`GroupSettings`: a broker's options about groups, and the limits of what a cluster keeps of them. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Final, Self

MAX_GROUPS: Final = 10_000
"""Groups of a cluster; Kafka has no such limit. One more gets POLICY_VIOLATION (44)."""

MAX_ID_BYTES: Final = 32_767
"""Of a group id, member id or instance id: the longest text of most requests."""

MAX_GROUP_BYTES: Final = 1_048_588
"""Metadata of all members of a group, or their assignments: `max.message.bytes` of the topic where Kafka stores a group."""

ITEM_BYTES: Final = 8
"""What each protocol or topic of a member counts beside its text: a million empty ones are not nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSettings:
    """Options of a broker about groups. Their names are Kafka's, with underscores; times are milliseconds."""

    group_initial_rebalance_delay_ms: int = 0
    """How long the first join of an empty group waits for others. Kafka's default is 3000, its quick start has 0."""
    group_min_session_timeout_ms: int = 6_000
    group_max_session_timeout_ms: int = 1_800_000
    group_max_size: int = 1_000
    """Members of a classic group, and ids given to members to be. Kafka's default is no limit."""
    group_consumer_session_timeout_ms: int = 45_000
    group_consumer_heartbeat_interval_ms: int = 5_000
    group_consumer_max_size: int = 1_000
    """Members of a group of the consumer protocol. Kafka's default is no limit."""

    @classmethod
    def of(cls, options: Mapping[str, int]) -> Self:
        """Return the settings of options by Kafka's names.

        Raises:
            ValueError: there is no such option, or a value is no number from 0 to 2^31-1.
        """
        known = {field.name.replace("_", "."): field.name for field in fields(cls)}
        given: dict[str, int] = {}
        for name, value in options.items():
            if name not in known:
                raise ValueError(f"the mock has no option {name!r} of groups; it has {', '.join(known)}")
            if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**31:  # pyright: ignore[reportUnnecessaryIsInstance]  # users without a type checker
                raise ValueError(f"{name} is a number from 0 to 2147483647, not {value!r}")
            given[known[name]] = value
        return cls(**given)
