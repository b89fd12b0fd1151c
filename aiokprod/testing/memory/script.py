"""`Script`: what a test wants to go wrong in a `MemoryProducer`. One per producer; pure.

A record is matched once, when its partition takes it: a rule is about records that are sent after it was written. Each
of fail and delay applies the oldest of its rules that names the topic, or none.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Generic, TypeVar

from aiokprod.errors import AiokprodError, ConfigError

T = TypeVar("T")


@dataclass(slots=True)
class _Rule(Generic[T]):
    effect: T
    topic: str | None
    left: int


class _Rules(Generic[T]):
    """Rules of one kind, oldest first."""

    def __init__(self) -> None:
        self._rules: list[_Rule[T]] = []

    def add(self, effect: T, topic: str | None, times: int) -> None:
        if isinstance(times, bool) or not isinstance(times, int) or times < 1:
            raise ConfigError(f"times must be a number of records above 0, not {times!r}")
        self._rules.append(_Rule(effect, topic, times))

    def take(self, topic: str) -> T | None:
        """Take the effect on the next record of the topic, and count it."""
        for rule in self._rules:
            if rule.topic is None or rule.topic == topic:
                rule.left -= 1
                if not rule.left:
                    self._rules.remove(rule)
                return rule.effect
        return None

    def clear(self) -> None:
        self._rules = []


class Script:
    """Errors and delays of records to come, and whether any record has its outcome at all."""

    def __init__(self) -> None:
        self.is_held = False
        self._errors: _Rules[AiokprodError] = _Rules()
        self._delays: _Rules[float] = _Rules()

    def fail_next(self, error: AiokprodError | type[AiokprodError], topic: str | None, times: int) -> None:
        """Make the next records fail with this error."""
        if isinstance(error, type) and issubclass(error, AiokprodError):
            error = error()
        if not isinstance(error, AiokprodError):
            raise ConfigError(f"error must be an error of aiokprod.errors, not {error!r}: no other reaches a caller")
        self._errors.add(error, topic, times)

    def delay_next(self, seconds: float, topic: str | None, times: int) -> None:
        """Give the next records their outcome `seconds` after they were sent."""
        if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds < inf:
            raise ConfigError(f"seconds must be a number from 0 on, not {seconds!r}; for a wait without end use hold()")
        self._delays.add(seconds, topic, times)

    def error_of_next(self, topic: str) -> AiokprodError | None:
        """Take the error of the next record of the topic; None: it is delivered."""
        return self._errors.take(topic)

    def delay_of_next(self, topic: str) -> float:
        """Take the delay of the next record: seconds from its send to its outcome, at least."""
        return self._delays.take(topic) or 0.0

    def clear(self) -> None:
        """Remove all that is scripted."""
        self.is_held = False
        self._errors.clear()
        self._delays.clear()
