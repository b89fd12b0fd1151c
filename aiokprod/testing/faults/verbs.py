"""The methods of a test that cause faults: fail, omit, drop, delay, hold, throttle, answer, damage, freeze.

The base class of `MockCluster` and `FaultProxy`: a script runs unchanged against either. Each of these methods adds one
`Fault` and returns its `Rule`: `rule.hits` counts, `rule.cancel()` ends it. A fault acts once unless `times` says otherwise.

The fields of `Fault` are their common parameters, where they apply. A fault that can apply to a request or its answer applies
to the answer, unless `before_serving` is true. All methods may be called from any thread.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TypedDict, Unpack

from aiokprod.testing.faults.effects import (
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
from aiokprod.testing.faults.fault import Fault
from aiokprod.testing.faults.rules import FaultRules, Rule
from aiokprod.testing.own_thread import LoopHome

Api = str | int | None


class Where(TypedDict, total=False):
    """The place and the count of a fault: fields of `Fault`."""

    broker: int | None
    topic: str | None
    partition: int | None
    nth: int
    times: int | None
    chance: float
    seed: int


class WhereAndWhich(Where, total=False):
    """`Where`, and the choice between a request and its answer: fields of `Fault`."""

    before_serving: bool


class FaultVerbs(ABC):
    """Faults of requests, answers, connections and brokers."""

    _home: LoopHome
    _faults: FaultRules

    # ------------------------------------------------------------------ answers

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
        """Answer with an error code.

        Args:
            api: name or key of the request, as in "Produce"; None is every API.
            error: Kafka's name of the code, as in "NOT_LEADER_OR_FOLLOWER", or a number, also one that Kafka does not have.
            message: text of the error; None is none.
            after_append: Produce: True appends the batch all the same; the answer carries its base offset (broker: 6.1,
                6.4).
            with_hint: Produce v10+: True names the current leader in the answer.
            **where: `broker`, `topic`, `partition`, `nth`, `times`, `chance` and `seed`, see `Fault`.

        Returns:
            The rule: `rule.hits` counts, `rule.cancel()` ends the fault.

        Raises:
            ValueError: the name is not one of Kafka's codes.
            TypeError: `error` is neither a name nor a number.
        """
        return self._add(api, Fail(code_of(error), message, after_append, with_hint), where)

    def omit_partition(
        self, api: Api, topic: str, partition: int, *, after_append: bool = True, times: int | None = 1
    ) -> Rule:
        """Leave a partition out of the answer.

        Args:
            api: name or key of the request, as in "Produce"; None is every API.
            topic: topic name.
            partition: partition number.
            after_append: Produce: True appends the batch all the same.
            times: number of matches to act on; None is all of them.

        Returns:
            The rule: `rule.hits` counts, `rule.cancel()` ends the fault.
        """
        return self._add(api, Omit(after_append), {"topic": topic, "partition": partition, "times": times})

    def throttle_next(self, api: Api, milliseconds: int, **where: Unpack[Where]) -> Rule:
        """Answer with `throttle_time_ms`, and read nothing from the connection for that time (broker: 14.1, 14.2).

        Args:
            api: name or key of the request, as in "Produce"; None is every API.
            milliseconds: that time.
            **where: `broker`, `topic`, `partition`, `nth`, `times`, `chance` and `seed`, see `Fault`.

        Returns:
            The rule: `rule.hits` counts, `rule.cancel()` ends the fault.
        """
        return self._add(api, Throttle(milliseconds), where)

    def answer_with(self, api: Api, make: Callable[[object, int], object], **where: Unpack[Where]) -> Rule:
        """Let a function make the answer.

        Args:
            api: name or key of the request, as in "Produce"; None is every API.
            make: called on the loop of the cluster or the proxy with the decoded request and its version; returns a
                message, the bytes of a body, or None for no answer.
            **where: `broker`, `topic`, `partition`, `nth`, `times`, `chance` and `seed`, see `Fault`.

        Returns:
            The rule: `rule.hits` counts, `rule.cancel()` ends the fault.
        """
        return self._add(api, Answer(make), where)

    def rewrite_answer(self, api: Api, change: Callable[[object, int], object], **where: Unpack[Where]) -> Rule:
        """Let a function change the answer.

        Args:
            api: name or key of the request, as in "Produce"; None is every API.
            change: called on the loop of the cluster or the proxy with the decoded answer and its version; returns a
                message, the bytes of a body, or None for no answer.
            **where: `broker`, `topic`, `partition`, `nth`, `times`, `chance` and `seed`, see `Fault`.

        Returns:
            The rule: `rule.hits` counts, `rule.cancel()` ends the fault.
        """
        return self._add(api, Rewrite(change), where)

    def on_request(self, api: Api, call: Callable[[], object], **where: Unpack[Where]) -> Rule:
        """Call a function just before a matching request is served.

        Args:
            api: name or key of the request, as in "Produce"; None is every API.
            call: called without arguments, on the loop of the cluster or the proxy.
            **where: `broker`, `topic`, `partition`, `nth`, `times`, `chance` and `seed`, see `Fault`.

        Returns:
            The rule: `rule.hits` counts, `rule.cancel()` ends the fault.
        """
        return self._add(api, Run(call), where)

    # ------------------------------------------------------------------ requests and answers that are late or lost

    def drop_answer(self, api: Api, *, after_append: bool = True, reset: bool = False, **where: Unpack[Where]) -> Rule:
        """Close the connection in place of the answer.

        Args:
            api: name or key of the request, as in "Produce"; None is every API.
            after_append: True carries the request out before; False does not.
            reset: True ends the connection with RST, as a killed process does; False with FIN.
            **where: `broker`, `topic`, `partition`, `nth`, `times`, `chance` and `seed`, see `Fault`.

        Returns:
            The rule: `rule.hits` counts, `rule.cancel()` ends the fault.
        """
        which: WhereAndWhich = {**where, "before_serving": not after_append}
        return self._add(api, Drop(reset), which)

    def close_after(self, api: Api, **where: Unpack[Where]) -> Rule:
        """Answer, then close the connection.

        Args:
            api: name or key of the request, as in "Produce"; None is every API.
            **where: `broker`, `topic`, `partition`, `nth`, `times`, `chance` and `seed`, see `Fault`.

        Returns:
            The rule: `rule.hits` counts, `rule.cancel()` ends the fault.
        """
        return self._add(api, Close(), where)

    def swallow_next(self, api: Api, **where: Unpack[WhereAndWhich]) -> Rule:
        """Lose an answer, or a request; the connection stays in use.

        Args:
            api: name or key of the request, as in "Produce"; None is every API.
            **where: `before_serving`, `broker`, `topic`, `partition`, `nth`, `times`, `chance` and `seed`, see `Fault`.

        Returns:
            The rule: `rule.hits` counts, `rule.cancel()` ends the fault.
        """
        return self._add(api, Swallow(), where)

    def blackhole_next(self, api: Api, **where: Unpack[WhereAndWhich]) -> Rule:
        """Lose an answer, or a request, and everything after it in the same direction; the connection stays open.

        Args:
            api: name or key of the request, as in "Produce"; None is every API.
            **where: `before_serving`, `broker`, `topic`, `partition`, `nth`, `times`, `chance` and `seed`, see `Fault`.

        Returns:
            The rule: `rule.hits` counts, `rule.cancel()` ends the fault.
        """
        return self._add(api, Blackhole(), where)

    def delay_next(self, api: Api, seconds: float, **where: Unpack[WhereAndWhich]) -> Rule:
        """Delay an answer, or a request, and everything behind it.

        Args:
            api: name or key of the request, as in "Produce"; None is every API.
            seconds: the delay.
            **where: `before_serving`, `broker`, `topic`, `partition`, `nth`, `times`, `chance` and `seed`, see `Fault`.

        Returns:
            The rule: `rule.hits` counts, `rule.cancel()` ends the fault.
        """
        return self._add(api, Delay(seconds), where)

    def hold(self, api: Api, **where: Unpack[WhereAndWhich]) -> Rule:
        """Hold answers, or requests, until `release`; every match, unless `times` is given.

        Args:
            api: name or key of the request, as in "Produce"; None is every API.
            **where: `before_serving`, `broker`, `topic`, `partition`, `nth`, `times`, `chance` and `seed`, see `Fault`.

        Returns:
            The rule: `rule.hits` counts, `rule.cancel()` ends the fault.
        """
        where.setdefault("times", None)
        return self._add(api, Hold(), where)

    def release(self, rule: Rule) -> None:
        """End a `hold`, and pass on what it holds, in order.

        Args:
            rule: the rule that `hold` returned.
        """
        rule.cancel()

    # ------------------------------------------------------------------ bytes

    def truncate_next(self, api: Api, size: int, **where: Unpack[WhereAndWhich]) -> Rule:
        """Pass on the first bytes of an answer, or of a request, then close the connection.

        Args:
            api: name or key of the request, as in "Produce"; None is every API.
            size: number of bytes, length prefix included; the last byte is never passed on.
            **where: `before_serving`, `broker`, `topic`, `partition`, `nth`, `times`, `chance` and `seed`, see `Fault`.

        Returns:
            The rule: `rule.hits` counts, `rule.cancel()` ends the fault.
        """
        return self._add(api, Truncate(size), where)

    def rechunk_next(self, api: Api, *, largest: int = 1, **where: Unpack[WhereAndWhich]) -> Rule:
        """Pass on an answer, or a request, in small pieces.

        Args:
            api: name or key of the request, as in "Produce"; None is every API.
            largest: greatest size of a piece, in bytes; the sizes are random.
            **where: `before_serving`, `broker`, `topic`, `partition`, `nth`, `times`, `chance` and `seed`, see `Fault`.

        Returns:
            The rule: `rule.hits` counts, `rule.cancel()` ends the fault.
        """
        return self._add(api, Rechunk(largest), where)

    def drip_next(self, api: Api, bytes_per_s: float, **where: Unpack[WhereAndWhich]) -> Rule:
        """Pass on an answer, or a request, slowly.

        Args:
            api: name or key of the request, as in "Produce"; None is every API.
            bytes_per_s: the rate, in bytes per second.
            **where: `before_serving`, `broker`, `topic`, `partition`, `nth`, `times`, `chance` and `seed`, see `Fault`.

        Returns:
            The rule: `rule.hits` counts, `rule.cancel()` ends the fault.
        """
        return self._add(api, Drip(bytes_per_s), where)

    def duplicate_next(self, api: Api, **where: Unpack[WhereAndWhich]) -> Rule:
        """Pass on an answer twice; or carry a request out twice, and answer it once.

        Args:
            api: name or key of the request, as in "Produce"; None is every API.
            **where: `before_serving`, `broker`, `topic`, `partition`, `nth`, `times`, `chance` and `seed`, see `Fault`.

        Returns:
            The rule: `rule.hits` counts, `rule.cancel()` ends the fault.
        """
        return self._add(api, Duplicate(), where)

    def corrupt_next(
        self, api: Api, *, offset: int | None = None, mask: int | None = None, **where: Unpack[WhereAndWhich]
    ) -> Rule:
        """Change one byte of an answer, or of a request; never of its length prefix.

        Args:
            api: name or key of the request, as in "Produce"; None is every API.
            offset: index of the byte after the length prefix; a negative one counts from the end; None is random.
            mask: the bits that flip, 1 to 255; None is random.
            **where: `before_serving`, `broker`, `topic`, `partition`, `nth`, `times`, `chance` and `seed`, see `Fault`.

        Returns:
            The rule: `rule.hits` counts, `rule.cancel()` ends the fault.
        """
        return self._add(api, Corrupt(offset, mask), where)

    def wrong_correlation_next(self, api: Api, **where: Unpack[WhereAndWhich]) -> Rule:
        """Give an answer, or a request, another correlation id.

        Args:
            api: name or key of the request, as in "Produce"; None is every API.
            **where: `before_serving`, `broker`, `topic`, `partition`, `nth`, `times`, `chance` and `seed`, see `Fault`.

        Returns:
            The rule: `rule.hits` counts, `rule.cancel()` ends the fault.
        """
        return self._add(api, WrongCorrelation(), where)

    def huge_length_next(self, api: Api, *, length: int = LARGEST_LENGTH, **where: Unpack[WhereAndWhich]) -> Rule:
        """Put a wrong length before an answer, or a request.

        Args:
            api: name or key of the request, as in "Produce"; None is every API.
            length: the length prefix, a signed number of 32 bits.
            **where: `before_serving`, `broker`, `topic`, `partition`, `nth`, `times`, `chance` and `seed`, see `Fault`.

        Returns:
            The rule: `rule.hits` counts, `rule.cancel()` ends the fault.
        """
        return self._add(api, HugeLength(length), where)

    # ------------------------------------------------------------------ connections and brokers

    def refuse_next(self, broker: int | None = None, *, times: int | None = 1) -> Rule:
        """Reset the next new connection at once.

        Args:
            broker: node id; None is every broker.
            times: number of connections; None is all of them.

        Returns:
            The rule: `rule.hits` counts, `rule.cancel()` ends the fault.
        """
        return self.add_fault(Fault(effect=Refuse(), broker=broker, times=times))

    @abstractmethod
    def close_connections(self, node: int | None = None, *, abort: bool = False) -> int:
        """Close the open connections of a broker, or of all brokers.

        Args:
            node: node id; None is every broker.
            abort: True resets the connections (RST), False ends them in order (FIN).

        Returns:
            The number of connections that were closed.
        """

    @abstractmethod
    def freeze_broker(self, node: int) -> None:
        """Make a broker silent, as a stopped process is: connections stay open, nothing is read or written.

        Args:
            node: node id.
        """

    @abstractmethod
    def thaw_broker(self, node: int) -> None:
        """Let a frozen broker continue where it stopped.

        Args:
            node: node id.
        """

    @abstractmethod
    def refuse_connections(self, node: int) -> None:
        """Refuse new connections to a broker; open connections stay in use.

        Args:
            node: node id.
        """

    @abstractmethod
    def allow_connections(self, node: int) -> None:
        """Accept connections again after `refuse_connections`, on the same port.

        Args:
            node: node id.
        """

    # ------------------------------------------------------------------ all of them

    def add_fault(self, fault: Fault) -> Rule:
        """Add a fault behind the others; its matches are counted from here.

        Args:
            fault: what happens, where, and how often.

        Returns:
            The rule: `rule.hits` counts, `rule.cancel()` ends the fault.
        """
        return self._home.call(lambda: self._faults.add(Rule(fault, self._home.call)))

    def clear_faults(self) -> None:
        """End all faults, and pass on what they hold."""
        self._home.call(self._faults.clear)

    def _add(self, api: Api, effect: Effect, where: Where) -> Rule:
        return self.add_fault(Fault(effect=effect, api=api, **where))
