"""Themes: features that make trouble together. A seed has one theme or none; its other features are drawn independently."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Theme:
    """The features a seed of this theme has, each with a high chance, and those it never has.

    Attributes:
        features: of options, hooks, weather, place and lives.
        operations, faults: by their names in the tables.
        is_calm: no faults.
        without: features it never has.
        others: how likely any other feature is.
        paces: seconds between operations, by and large.
        troubles: how many faults.
    """

    features: tuple[str, ...] = ()
    operations: tuple[str, ...] = ()
    faults: tuple[str, ...] = ()
    is_calm: bool = False
    without: frozenset[str] = field(default_factory=frozenset[str])
    others: float = 0.1
    paces: tuple[float, ...] = (0.0, 0.001, 0.02, 0.02, 0.3, 0.3, 2.0)
    troubles: tuple[int, ...] = (1, 2, 4, 8, 16)


WILD = ("misuse", "close", "restart", "start", "sabotage", "many_endless", "wrong_ping")
"""Operations after which little else can be seen: only some seeds have them."""

PLAIN = frozenset(
    {"serializer", "partitioner", "reaction", "two_producers", "slow_start", "late_topic", "sudden_end", "second_loop"}
)

EXPIRING = ("tight", "timeouts")
"""Themes whose worlds go on until records have expired: all is well again at the end, and then none does."""

THEMES: dict[str, Theme] = {
    # A full buffer, and a leader that is away until records expire.
    "tight": Theme(
        ("small_buffer", "short_delivery", "short_requests", "small_batches"),
        ("trickle", "trickle", "fill", "drop", "burst", "await", "timeouts", "recall"),
        ("refuse", "leaderless", "hold", "freeze"),
        without=PLAIN | {"long_linger", "small_block", "acks_0", "large_limits", "one_broker"},
        others=0.03,
        paces=(0.01, 0.03, 0.1),
    ),
    # Nothing is wrong, and still there is something to wait for.
    "calm": Theme(
        ("small_buffer", "long_linger", "many_partitions", "large_waiting"),
        ("drop", "burst", "spread", "spread", "flush", "flush", "try_send", "await", "many"),
        is_calm=True,
        without=PLAIN | {"small_block", "short_delivery", "turn_cost", "far"},
    ),
    # Large sections go to threads, while their records leave.
    "press": Theme(
        ("compression", "validate", "large_limits"),
        ("press", "press", "recall", "timeouts", "cancel", "await"),
        ("move", "fail", "refuse"),
        without=PLAIN | {"small_buffer", "small_batches", "small_messages"},
        others=0.05,
    ),
    # Topics and partitions that are not known yet, or refused, or new.
    "learn": Theme(
        ("late_topic", "small_buffer", "two_topics", "young_metadata", "old_brokers"),
        (
            "missing_partition",
            "nowhere",
            "wrong_first",
            "drop",
            "burst",
            "await",
            "partitions_for",
            "ask_elsewhere",
            "columns",
            "many",
        ),
        ("of_topic", "grow", "grow", "create", "delete", "recreate", "delay"),
        without=frozenset({"serializer", "reaction", "two_producers", "sudden_end"}),
        paces=(0.001, 0.02, 0.3, 2.0, 2.0),
    ),
    # Things happen in the same moment: a leader dies when metadata arrives.
    "lockstep": Theme(
        ("lockstep", "young_metadata", "large_limits"),
        ("drop", "await", "flush"),
        ("move_and_reset", "move_and_reset", "move_and_reset", "kill", "move", "hold", "hold", "shrink"),
        without=PLAIN | {"small_buffer", "one_broker", "acks_0", "turn_cost", "far", "small_messages"},
        others=0.03,
        paces=(0.02, 0.1),
        troubles=(4, 8, 16),
    ),
    "dressed": Theme(
        ("serializer", "interceptor"),
        ("drop", "await", "many", "timeouts", "flush", "release", "callback", "misuse"),
        without=frozenset({"two_producers"}),
    ),
    "lives": Theme(
        ("slow_start", "closed_twice", "interceptor", "sudden_end"),
        ("close", "restart", "start", "await", "drop", "many", "flush", "ready"),
    ),
    "bulk": Theme(
        ("small_waiting", "small_buffer"),
        ("many", "many", "columns", "drop", "ready", "many_endless"),
        ("hold", "delay", "refuse", "leaderless", "fail"),
        without=PLAIN,
    ),
    "third_parties": Theme(
        ("serializer", "interceptor", "small_buffer"),
        ("sabotage", "many_endless", "many", "drop", "await", "columns", "restart"),
        others=0.05,
    ),
    "no_answers": Theme(
        ("acks_0", "small_batches"),
        ("burst", "drop", "await", "flush"),
        ("reset", "kill", "silence"),
        without=PLAIN,
    ),
    # Handles with timeouts of their own, before and after the stamp.
    "timeouts": Theme(
        ("short_delivery", "errors_are_heard"),
        ("timeouts", "timeouts_distinct", "many", "cancel_handle", "poll", "recall"),
        ("hold", "refuse", "swallow", "silence", "leaderless"),
        without=PLAIN | {"acks_0"},
    ),
}
