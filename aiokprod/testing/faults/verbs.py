"""The verbs of a test that wants trouble: fail, omit, drop, delay, hold, throttle, answer, damage, freeze.

The base class of `MockCluster` and `FaultProxy`: a script runs unchanged against either. Each verb adds one `Fault` and
returns its `Rule`: `rule.hits` counts, `rule.cancel()` ends it. A fault acts once unless `times` says otherwise.

All take where it applies: `api` (a name or key; None for every API), `broker`, `topic`, `partition`, `nth` (the first
match to act on, 1 is the next), `times` (None for ever), `chance` and `seed`. What can befall a request as well as its
answer befalls the answer; the request, `before_serving`. Every verb may be called from any thread.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TypedDict, Unpack

from ..own_thread import LoopHome
from .effects import (
    LARGEST_LENGTH,
    Answer,
    Blackhole,
    Close,
    Corrupt,
    Delay,
    Drip,
    Drop,
    Duplicate,
    Effect,
    Fail,
    Hold,
    HugeLength,
    Omit,
    Rechunk,
    Refuse,
    Rewrite,
    Run,
    Swallow,
    Throttle,
    Truncate,
    WrongCorrelation,
    code_of,
)
from .fault import Fault
from .rules import FaultRules, Rule

Api = str | int | None


class Where(TypedDict, total=False):
    """Where and how often a fault applies."""

    broker: int | None
    topic: str | None
    partition: int | None
    nth: int
    times: int | None
    chance: float
    seed: int


class WhereAndWhich(Where, total=False):
    """The same for what can befall a request as well as its answer."""

    before_serving: bool


class FaultVerbs(ABC):
    """What can be done to requests, answers, connections and brokers."""

    _home: LoopHome
    _faults: FaultRules

    # ---- answers

    def fail_next(
        self,
        api: Api,
        error: int | str,
        *,
        message: str | None = None,
        after_append: bool = False,
        with_hint: bool = False,
        **where: Unpack[Where],
    ) -> Rule:
        """Answer an error code, known or not, by number or Kafka's name.

        Args:
            after_append: Produce: append the batch all the same; the answer carries its base offset (broker: 6.1, 6.4).
            with_hint: Produce v10+: name the current leader too.
        """
        return self._add(api, Fail(code_of(error), message, after_append, with_hint), where)

    def omit_partition(
        self, api: Api, topic: str, partition: int, *, after_append: bool = True, times: int | None = 1
    ) -> Rule:
        """Leave the partition out of the answer; a Produce is carried out unless `after_append` is false."""
        return self._add(api, Omit(after_append), {"topic": topic, "partition": partition, "times": times})

    def throttle_next(self, api: Api, milliseconds: int, **where: Unpack[Where]) -> Rule:
        """Answer with throttle_time_ms and leave the channel unread for as long (broker: 14.1, 14.2)."""
        return self._add(api, Throttle(milliseconds), where)

    def answer_with(self, api: Api, make: Callable[[object, int], object], **where: Unpack[Where]) -> Rule:
        """Let a callable answer: it gets the decoded request and its version; it returns a message, bytes or None."""
        return self._add(api, Answer(make), where)

    def rewrite_answer(self, api: Api, change: Callable[[object, int], object], **where: Unpack[Where]) -> Rule:
        """Let a callable change the answer: it gets it decoded, and its version; it returns a message, bytes or None."""
        return self._add(api, Rewrite(change), where)

    def on_request(self, api: Api, call: Callable[[], object], **where: Unpack[Where]) -> Rule:
        """Call something, on the loop of the cluster or the proxy, just before a matching request is served."""
        return self._add(api, Run(call), where)

    # ---- requests and answers that are late or lost

    def drop_answer(self, api: Api, *, after_append: bool = True, reset: bool = False, **where: Unpack[Where]) -> Rule:
        """Close the connection instead of answering, after carrying the request out or instead of it.

        Args:
            reset: with RST, as a killed process leaves it, not with FIN.
        """
        which: WhereAndWhich = {**where, "before_serving": not after_append}
        return self._add(api, Drop(reset), which)

    def close_after(self, api: Api, **where: Unpack[Where]) -> Rule:
        """Answer, then close the connection."""
        return self._add(api, Close(), where)

    def swallow_next(self, api: Api, **where: Unpack[WhereAndWhich]) -> Rule:
        """Lose the answer (or the request, `before_serving`); the connection goes on."""
        return self._add(api, Swallow(), where)

    def blackhole_next(self, api: Api, **where: Unpack[WhereAndWhich]) -> Rule:
        """Lose the answer (or the request) and all after it on this connection, which stays open."""
        return self._add(api, Blackhole(), where)

    def delay_next(self, api: Api, seconds: float, **where: Unpack[WhereAndWhich]) -> Rule:
        """Keep the answer back for so long (or the request, `before_serving`); what is behind it waits too."""
        return self._add(api, Delay(seconds), where)

    def hold(self, api: Api, **where: Unpack[WhereAndWhich]) -> Rule:
        """Keep answers (or requests) until `release`; for ever on every match unless `times` is given."""
        where.setdefault("times", None)
        return self._add(api, Hold(), where)

    def release(self, rule: Rule) -> None:
        """Let go what a `hold` keeps, in order, and end it."""
        rule.cancel()

    # ---- bytes

    def truncate_next(self, api: Api, size: int, **where: Unpack[WhereAndWhich]) -> Rule:
        """Pass so many bytes of the answer (or the request), length prefix included, then close."""
        return self._add(api, Truncate(size), where)

    def rechunk_next(self, api: Api, *, largest: int = 1, **where: Unpack[WhereAndWhich]) -> Rule:
        """Pass the answer (or the request) in pieces of 1 to `largest` bytes."""
        return self._add(api, Rechunk(largest), where)

    def drip_next(self, api: Api, bytes_per_s: float, **where: Unpack[WhereAndWhich]) -> Rule:
        """Pass the answer (or the request) at this rate."""
        return self._add(api, Drip(bytes_per_s), where)

    def duplicate_next(self, api: Api, **where: Unpack[WhereAndWhich]) -> Rule:
        """Pass the answer twice; or the request: it is carried out twice and answered once."""
        return self._add(api, Duplicate(), where)

    def corrupt_next(
        self, api: Api, *, offset: int | None = None, mask: int | None = None, **where: Unpack[WhereAndWhich]
    ) -> Rule:
        """Change one byte of the answer (or the request), behind its length; which and how is drawn unless said."""
        return self._add(api, Corrupt(offset, mask), where)

    def wrong_correlation_next(self, api: Api, **where: Unpack[WhereAndWhich]) -> Rule:
        """Give the answer (or the request) another correlation id."""
        return self._add(api, WrongCorrelation(), where)

    def huge_length_next(self, api: Api, *, length: int = LARGEST_LENGTH, **where: Unpack[WhereAndWhich]) -> Rule:
        """Let the length prefix of the answer (or the request) say `length`."""
        return self._add(api, HugeLength(length), where)

    # ---- connections and brokers

    def refuse_next(self, broker: int | None = None, *, times: int | None = 1) -> Rule:
        """Reset a new connection at once."""
        return self.add_fault(Fault(effect=Refuse(), broker=broker, times=times))

    @abstractmethod
    def close_connections(self, node: int | None = None, *, abort: bool = False) -> int:
        """Close the connections of one broker or all (FIN, or RST with `abort`); returns how many."""

    @abstractmethod
    def freeze_broker(self, node: int) -> None:
        """Let a broker fall silent as a stopped process does: connections open, nothing read and nothing written."""

    @abstractmethod
    def thaw_broker(self, node: int) -> None:
        """Let it go on where it stopped."""

    @abstractmethod
    def refuse_connections(self, node: int) -> None:
        """Listen no more for this broker: who dials is refused. Open connections go on."""

    @abstractmethod
    def allow_connections(self, node: int) -> None:
        """Listen again after `refuse_connections`, on the same port."""

    # ---- all of them

    def add_fault(self, fault: Fault) -> Rule:
        """Put a fault in force, behind the others; its matches are counted from now on."""
        return self._home.call(lambda: self._faults.add(Rule(fault, self._home.call)))

    def clear_faults(self) -> None:
        """End every rule and let go of what they hold."""
        self._home.call(self._faults.clear)

    def _add(self, api: Api, effect: Effect, where: Where) -> Rule:
        return self.add_fault(Fault(effect=effect, api=api, **where))
