"""The verbs of a test that wants trouble: fail, drop, delay, hold, throttle, omit, answer.

A base class of `MockCluster`. Each verb adds one rule and returns it: `rule.hits` counts, `rule.cancel()` ends it.
All take where it applies: `api` (a name or key; None for every API), `broker`, `topic`, `partition`, `skip` (let so
many pass first) and `times` (None for ever). Every verb may be called from any thread.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypedDict, Unpack

from .api_names import api_key_of
from .faults import Action, Answer, Delay, Drop, Fail, FaultRules, Hold, Omit, Rule, Run, Throttle, code_of
from .own_thread import LoopHome


class Where(TypedDict, total=False):
    """Where and how often a rule applies."""

    broker: int | None
    topic: str | None
    partition: int | None
    times: int | None
    skip: int


class FaultVerbs:
    """What can be done to requests and answers."""

    _home: LoopHome
    _faults: FaultRules

    def fail_next(
        self,
        api: str | int | None,
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
        self, api: str | int | None, topic: str, partition: int, *, after_append: bool = True, times: int | None = 1
    ) -> Rule:
        """Leave the partition out of the answer; a Produce is carried out unless `after_append` is false."""
        return self._add(api, Omit(after_append), {"topic": topic, "partition": partition, "times": times})

    def drop_answer(self, api: str | int | None, *, after_append: bool = True, **where: Unpack[Where]) -> Rule:
        """Close the connection instead of answering, after carrying the request out or instead of it."""
        return self._add(api, Drop(after_append), where)

    def delay_next(
        self, api: str | int | None, seconds: float, *, before_serving: bool = False, **where: Unpack[Where]
    ) -> Rule:
        """Keep the answer back for so long (or the request, `before_serving`); what is behind it waits too."""
        return self._add(api, Delay(seconds, before_serving), where)

    def hold(self, api: str | int | None, *, before_serving: bool = False, **where: Unpack[Where]) -> Rule:
        """Keep answers (or requests) until `release`; for ever on every match unless `times` is given."""
        where.setdefault("times", None)
        return self._add(api, Hold(before_serving), where)

    def release(self, rule: Rule) -> None:
        """Let go what a `hold` keeps, in order, and end it."""
        self._home.call(rule.release)

    def throttle_next(self, api: str | int | None, milliseconds: int, **where: Unpack[Where]) -> Rule:
        """Answer with throttle_time_ms and leave the channel unread for as long (broker: 14.1, 14.2)."""
        return self._add(api, Throttle(milliseconds), where)

    def answer_with(self, api: str | int | None, make: Callable[[object, int], object], **where: Unpack[Where]) -> Rule:
        """Let a callable answer: it gets the decoded request and its version; it returns a message, bytes or None."""
        return self._add(api, Answer(make), where)

    def on_request(
        self, api: str | int | None, call: Callable[[], object], *, nth: int = 1, **where: Unpack[Where]
    ) -> Rule:
        """Call something on the cluster's loop just before the n-th matching request from now is served."""
        where["skip"] = nth - 1
        return self._add(api, Run(call), where)

    def clear_faults(self) -> None:
        """End every rule and release what they hold."""
        self._home.call(self._faults.clear)

    def _add(self, api: str | int | None, action: Action, where: Where) -> Rule:
        rule = Rule(action, None if api is None else api_key_of(api), **where)
        return self._home.call(lambda: self._faults.add(rule))
