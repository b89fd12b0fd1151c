"""`Rule`: a fault in force; `FaultRules`: all of them, in order, each matched against what passes.

One `FaultRules` per MockCluster or FaultProxy, on its loop. Requests are matched once, when they are taken up; each
topic or partition in them once; new connections once.

Invariants: the first live rule that matches acts, alone, and later rules do not count that match; a spent rule leaves
the list, unless it still holds something; a rule acts on the n-th match and from there on as often as it says.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Collection
from random import Random
from typing import TypeAlias

from aiokprod.testing.faults.effects import ON_CHUNKS, Fail, Hold, ItemEffect, Omit
from aiokprod.testing.faults.fault import Fault

OnLoop: TypeAlias = Callable[[Callable[[], None]], object]
"""Runs a function on the loop where the rules live."""


class Rule:
    """A fault in force. Its methods may be called from any thread."""

    __slots__ = ("_chances", "_changed", "_is_disarmed", "_on_loop", "_released", "_seen", "fault", "hits", "random")

    def __init__(self, fault: Fault, on_loop: OnLoop = lambda work: work()) -> None:
        self.fault = fault
        self.hits = 0
        """How often it acted."""
        # Two streams: an effect draws as often as its target asks (a proxy cuts a request, a broker in this process does not),
        # and the next chance must not depend on the target.
        self._chances = Random(fault.seed)
        self.random = Random(f"effect of {fault.seed}")
        """What the effect draws from."""
        self._on_loop = on_loop
        self._seen = 0
        self._is_disarmed = False
        self._released = asyncio.Event()
        self._changed = threading.Condition()

    def __repr__(self) -> str:
        state = "spent" if self.is_spent else "armed"
        return f"<Rule {state} hits={self.hits} {self.fault}>"

    @property
    def is_spent(self) -> bool:
        """Return whether the rule will not act again."""
        return self._is_disarmed or (self.fault.times is not None and self.hits >= self.fault.times)

    @property
    def still_holds(self) -> bool:
        """Return whether a frame that the rule holds waits for `release`, or may come to."""
        return isinstance(self.fault.effect, Hold) and self.hits > 0 and not self._released.is_set()

    def disarm(self) -> None:
        """Stop matching. Frames that the rule holds stay held until `release`."""
        self._is_disarmed = True

    def cancel(self) -> None:
        """Stop matching, and release all frames that the rule holds, in order."""
        self._is_disarmed = True
        self._on_loop(self._released.set)

    def wait_hit(self, hits: int = 1, timeout_s: float = 10.0) -> None:
        """Block this thread until the rule has matched so often. (On an event loop: `asyncio.to_thread(rule.wait_hit)`.)

        Raises:
            TimeoutError: it has not.
        """
        with self._changed:
            if not self._changed.wait_for(lambda: self.hits >= hits, timeout_s):
                raise TimeoutError(f"{self.hits} of {hits} hits after {timeout_s} s: {self.fault}")

    async def released(self) -> None:
        """Wait for `release` or `cancel`. For the loop of the rules."""
        await self._released.wait()

    def take(self) -> bool:
        """Count a match; is it this rule's turn to act?"""
        if self.is_spent:
            return False
        self._seen += 1
        if self._seen < self.fault.nth:
            return False
        if self.fault.chance < 1.0 and self._chances.random() >= self.fault.chance:
            return False
        with self._changed:
            self.hits += 1
            self._changed.notify_all()
        return True


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
        """End all rules and let go of what they hold."""
        for rule in self._rules:
            rule.cancel()
        self._rules.clear()

    @property
    def names_partitions(self) -> bool:
        """Return whether a rule names a partition: Metadata asks for its partitions only then, a topic-wide rule hits once."""
        return any(rule.fault.partition is not None for rule in self._rules)

    def has_request_rules(self, api_key: int) -> bool:
        """Return whether a whole-request rule may match, so that its items are worth listing."""
        self._sweep()
        return any(r.fault.is_about_requests and r.fault.api_key in (None, api_key) for r in self._rules)

    def has_item_rules(self, api_key: int) -> bool:
        """Return whether a partition or topic in a request of this API may be meant."""
        return any(r.fault.is_about_items and r.fault.api_key in (None, api_key) for r in self._rules)

    def for_request(self, api_key: int, broker: int, items: Collection[tuple[str, int]]) -> Rule | None:
        """Return the rule for a request that is about to be served; counts as a hit."""
        for rule in self._rules:
            fault = rule.fault
            if fault.is_about_requests and fault.matches_request(api_key, broker, items) and rule.take():
                return rule
        return None

    def for_item(self, api_key: int, broker: int, topic: str = "", partition: int = -1) -> ItemEffect | None:
        """Return the effect on one topic (partition -1), one partition, or an API without either; counts as a hit."""
        for rule in self._rules:
            effect = rule.fault.effect
            if (
                isinstance(effect, Fail | Omit)
                and rule.fault.matches_item(api_key, broker, topic, partition)
                and rule.take()
            ):
                self._sweep()
                return effect
        return None

    def for_chunk(self, broker: int, *, is_request: bool) -> Rule | None:
        """Return the rule for bytes without visible frames; counts as a hit. A rule that names an API never matches."""
        for rule in self._rules:
            fault = rule.fault
            if (
                isinstance(fault.effect, ON_CHUNKS)
                and fault.before_serving == is_request
                and fault.matches_request(-1, broker, ())
                and rule.take()
            ):
                return rule
        return None

    def refuses_connection(self, broker: int) -> bool:
        """Return whether a new connection at this broker is to be reset; counts as a hit."""
        return any(rule.fault.matches_connection(broker) and rule.take() for rule in self._rules)

    def _sweep(self) -> None:
        self._rules = [rule for rule in self._rules if not rule.is_spent or rule.still_holds]
