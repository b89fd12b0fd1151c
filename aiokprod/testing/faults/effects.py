"""The effects of faults: one small value per kind; where and how often is said by `Fault`. Pure.

Four families. Item effects apply to one partition or topic inside a request; request effects to a request or its answer;
damage to the bytes of either; `Refuse` to a new connection.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Final, TypeAlias

from aiokprod.wire.codes import ErrorCode

LARGEST_LENGTH: Final = 2**31 - 1


# ---------------------------------------------------------------------- one partition, topic or whole API
@dataclass(frozen=True, slots=True)
class Fail:
    """Answer this code. With `after_append` the batch is appended first and the answer carries its base offset."""

    code: int
    message: str | None = None
    after_append: bool = False
    with_hint: bool = False
    """Produce v10+: name the current leader beside the code."""


@dataclass(frozen=True, slots=True)
class Omit:
    """Leave the partition out of the answer; with `after_append` its batch is appended all the same."""

    after_append: bool = True


# ---------------------------------------------------------------------- a request or its answer
@dataclass(frozen=True, slots=True)
class Drop:
    """Close the connection instead of passing the request or answer on: with FIN, or with RST if `reset`."""

    reset: bool = False


@dataclass(frozen=True, slots=True)
class Close:
    """Close the connection after the answer was written."""


@dataclass(frozen=True, slots=True)
class Swallow:
    """Lose the request or answer; the connection stays open and goes on."""


@dataclass(frozen=True, slots=True)
class Blackhole:
    """Lose the request or answer, and everything after it in that direction; the connection stays open."""


@dataclass(frozen=True, slots=True)
class Delay:
    """Delay the request or answer, and everything behind it, by this time."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Hold:
    """Hold the request or answer, and everything behind it, until `release`."""


@dataclass(frozen=True, slots=True)
class Throttle:
    """Answer with this throttle_time_ms and leave the channel unread for as long (broker: 14.1, 14.2)."""

    milliseconds: int


@dataclass(frozen=True, slots=True)
class Answer:
    """Let a callable make the answer: it gets (request, version) and returns a message, raw body bytes, or None."""

    make: Callable[[object, int], object]


@dataclass(frozen=True, slots=True)
class Rewrite:
    """Let a callable change the answer: it gets (answer, version) and returns a message, raw body bytes, or None."""

    change: Callable[[object, int], object]


@dataclass(frozen=True, slots=True)
class Run:
    """Call something just before the request is served; the request goes on."""

    call: Callable[[], object]


# ---------------------------------------------------------------------- bytes
@dataclass(frozen=True, slots=True)
class Truncate:
    """Pass the first `size` bytes of the frame, length prefix included, but never its last byte; then close."""

    size: int


@dataclass(frozen=True, slots=True)
class Rechunk:
    """Pass the frame in pieces of 1 to `largest` bytes, their sizes drawn at random, each in a write of its own."""

    largest: int = 1


@dataclass(frozen=True, slots=True)
class Drip:
    """Pass the frame at this rate, in pieces of random size."""

    bytes_per_s: float


@dataclass(frozen=True, slots=True)
class Duplicate:
    """Pass the frame twice. If a request is doubled, only the first answer goes back."""


@dataclass(frozen=True, slots=True)
class Corrupt:
    """Change one byte behind the length prefix, at random unless `offset` and `mask` say which byte and how.

    Attributes:
        offset: negative counts from the end; None: drawn.
        mask: 1 to 255, the bits that flip; None: drawn.
    """

    offset: int | None = None
    mask: int | None = None


@dataclass(frozen=True, slots=True)
class WrongCorrelation:
    """Give the frame another correlation id."""


@dataclass(frozen=True, slots=True)
class HugeLength:
    """Replace the length prefix by `length`, however many bytes follow."""

    length: int = LARGEST_LENGTH


# ---------------------------------------------------------------------- a connection
@dataclass(frozen=True, slots=True)
class Refuse:
    """Reset a new connection at once."""


ItemEffect: TypeAlias = Fail | Omit
Damage: TypeAlias = Truncate | Rechunk | Drip | Duplicate | Corrupt | WrongCorrelation | HugeLength
RequestEffect: TypeAlias = (
    Drop | Close | Swallow | Blackhole | Delay | Hold | Throttle | Answer | Rewrite | Run
    | Truncate | Rechunk | Drip | Duplicate | Corrupt | WrongCorrelation | HugeLength
)  # fmt: skip
Effect: TypeAlias = ItemEffect | RequestEffect | Refuse

EITHER_WAY: Final = (
    Drop, Swallow, Blackhole, Delay, Hold, Truncate, Rechunk, Drip, Duplicate, Corrupt, WrongCorrelation, HugeLength
)  # fmt: skip
"""Effects that can apply to the request as well as to its answer."""

ON_CHUNKS: Final = (Drop, Close, Swallow, Blackhole, Delay, Hold, Truncate, Rechunk, Drip, Duplicate)
"""Effects that can apply to bytes in which no frames can be found."""


def damage_of(effect: Effect) -> Damage | None:
    """Return the effect, if it is one on bytes."""
    match effect:
        case Truncate() | Rechunk() | Drip() | Duplicate() | Corrupt() | WrongCorrelation() | HugeLength():
            return effect
        case _:
            return None


def code_of(error: int | str | ErrorCode) -> int:
    """Return the code for a number (also an unknown one) or Kafka's name."""
    if isinstance(error, str):
        try:
            return int(ErrorCode[error])
        except KeyError:
            near = get_close_matches(error.upper(), ErrorCode.__members__, 1)
            hint = f": did you mean {near[0]!r}?" if near else ""
            raise ValueError(f"unknown error name {error!r}{hint}") from None
    if isinstance(error, bool) or not isinstance(error, int):
        raise TypeError(
            f"error must be what a broker answers, a number or a name like 'NOT_LEADER_OR_FOLLOWER', not {error!r}:"
            " MemoryProducer.fail_next takes errors of aiokprod.errors"
        )
    return int(error)
