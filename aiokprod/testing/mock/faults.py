"""The scripted faults of a MockCluster: an ordered list of rules, each matched against what is about to be answered.

One `FaultRules` per cluster. A rule says where it matches (API, broker, topic, partition, after how many), how often it
acts (`times`, None for ever), and what is done. Requests are matched once, when they are about to be served (`Drop`,
`Delay`, `Hold`, `Answer`, `Throttle`, `Run`), and each topic or partition in them once (`Fail`, `Omit`).

Invariants: the first live rule that matches acts, alone; a spent rule leaves the list; matching is pure.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import TypeAlias

from aiokprod.wire.codes import ErrorCode


@dataclass(frozen=True, slots=True)
class Fail:
    """Answer this code. With `after_append` the batch is appended first and the answer carries its base offset."""

    code: int
    message: str | None = None
    after_append: bool = False
    with_hint: bool = False
    """Produce and Fetch v10+: name the current leader beside the code."""


@dataclass(frozen=True, slots=True)
class Omit:
    """Leave the partition out of the answer; with `after_append` its batch is appended all the same."""

    after_append: bool = True


@dataclass(frozen=True, slots=True)
class Drop:
    """Close the connection instead of answering; the request was carried out if `after_append`."""

    after_append: bool


@dataclass(frozen=True, slots=True)
class Delay:
    """Wait before the request is served, or before its answer is written."""

    seconds: float
    before_serving: bool


@dataclass(slots=True)
class Hold:
    """Keep the answer (or the request) until `release`."""

    before_serving: bool
    released: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass(frozen=True, slots=True)
class Throttle:
    """Answer with this throttle_time_ms and leave the channel unread for as long (broker: 14.1, 14.2)."""

    milliseconds: int


@dataclass(frozen=True, slots=True)
class Answer:
    """Let a callable make the answer: it gets (request, version) and returns a message, raw body bytes, or None."""

    make: Callable[[object, int], object]


@dataclass(frozen=True, slots=True)
class Run:
    """Call something just before the request is served; the request goes on."""

    call: Callable[[], object]


RequestAction: TypeAlias = Drop | Delay | Hold | Throttle | Answer | Run
ItemAction: TypeAlias = Fail | Omit
Action: TypeAlias = RequestAction | ItemAction

_REQUEST_ACTIONS = (Drop, Delay, Hold, Throttle, Answer, Run)


@dataclass(slots=True, eq=False)
class Rule:
    """One fault. `hits` says how often it acted; `cancel` ends it, and releases what it holds."""

    action: Action
    api_key: int | None = None
    broker: int | None = None
    topic: str | None = None
    partition: int | None = None
    times: int | None = 1
    skip: int = 0
    hits: int = 0
    is_cancelled: bool = False

    @property
    def is_spent(self) -> bool:
        """Whether it will not act again."""
        return self.is_cancelled or (self.times is not None and self.hits >= self.times)

    def cancel(self) -> None:
        """Act no more."""
        self.is_cancelled = True
        self.release()

    def release(self) -> None:
        """Let go what a `Hold` keeps; nothing for other actions. The rule itself ends with it."""
        if isinstance(self.action, Hold):
            self.is_cancelled = True
            self.action.released.set()

    def _take(self) -> bool:
        if self.skip > 0:
            self.skip -= 1
            return False
        self.hits += 1
        return True

    def _is_about(self, api_key: int, broker: int) -> bool:
        return self.api_key in (None, api_key) and self.broker in (None, broker)

    def matches_request(self, api_key: int, broker: int, items: Collection[tuple[str, int]]) -> bool:
        """Whether a request with these (topic, partition) pairs is meant; a pair's partition may be -1 (a topic)."""
        if not self._is_about(api_key, broker):
            return False
        if self.topic is None and self.partition is None:
            return True
        return any(self._covers(topic, partition) for topic, partition in items)

    def matches_item(self, api_key: int, broker: int, topic: str, partition: int) -> bool:
        """Whether this topic or partition of a request is meant."""
        return self._is_about(api_key, broker) and self._covers(topic, partition)

    def _covers(self, topic: str, partition: int) -> bool:
        return self.topic in (None, topic) and self.partition in (None, partition)


class FaultRules:
    """The rules in force, oldest first. False when there is none: the record path asks only that."""

    __slots__ = ("_rules",)

    def __init__(self) -> None:
        self._rules: list[Rule] = []

    def __bool__(self) -> bool:
        return bool(self._rules)

    def __len__(self) -> int:
        return len(self._rules)

    def __repr__(self) -> str:
        return f"<FaultRules {self._rules}>"

    def add(self, rule: Rule) -> Rule:
        """Put a rule behind the others."""
        self._rules.append(rule)
        return rule

    def clear(self) -> None:
        """End all rules and release what they hold."""
        for rule in self._rules:
            rule.cancel()
        self._rules.clear()

    @property
    def names_partitions(self) -> bool:
        """Whether a rule names a partition: Metadata asks for its partitions only then, a topic-wide rule hits once."""
        return any(rule.partition is not None for rule in self._rules)

    def has_request_rules(self, api_key: int) -> bool:
        """Whether a whole-request rule may match, so that its items are worth listing."""
        self._sweep()
        return any(r.api_key in (None, api_key) and isinstance(r.action, _REQUEST_ACTIONS) for r in self._rules)

    def for_request(self, api_key: int, broker: int, items: Collection[tuple[str, int]]) -> RequestAction | None:
        """The action for a request about to be served; counts as a hit."""
        for rule in self._rules:
            if (
                isinstance(rule.action, _REQUEST_ACTIONS)
                and not rule.is_spent
                and rule.matches_request(api_key, broker, items)
                and rule._take()
            ):
                return rule.action
        return None

    def for_item(self, api_key: int, broker: int, topic: str = "", partition: int = -1) -> ItemAction | None:
        """The action for one topic (partition -1), one partition, or an API without either; counts as a hit."""
        for rule in self._rules:
            if (
                not isinstance(rule.action, _REQUEST_ACTIONS)
                and not rule.is_spent
                and rule.matches_item(api_key, broker, topic, partition)
                and rule._take()
            ):
                self._sweep()
                return rule.action
        return None

    def _sweep(self) -> None:
        self._rules = [rule for rule in self._rules if not rule.is_spent or _still_holds(rule)]


def _still_holds(rule: Rule) -> bool:
    return isinstance(rule.action, Hold) and not rule.action.released.is_set()


def code_of(error: int | str | ErrorCode) -> int:
    """A code from a number (also an unknown one) or Kafka's name."""
    if isinstance(error, str):
        try:
            return int(ErrorCode[error])
        except KeyError:
            raise ValueError(f"unknown error name {error!r}") from None
    return int(error)
