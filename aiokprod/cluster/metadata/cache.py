"""`MetadataCache`: the current `ClusterSnapshot`, the topics of interest, and the task that refreshes it.

One per start of a `ClusterClient`, which passes it a function for one request (`fetch`) and runs its one task (`run`).

    want, refresh, age  ->  RefreshSchedule  ->  fetch (one broker, one answer)  ->  merge_answer  ->  changed(old, new)
                                  ^                                                      |
                                  +---- topics without leader, unknown, in error <-------+

Invariants:

- At most one request is in flight; any number of wishes leads to one request (`# faults: T14`).
- Only topics in use are asked for. A wish for a new topic, or a topic that an answer left unsettled, asks for those
  topics alone; everything else asks for all.
- An answer is applied whole or not at all, and the snapshot is replaced in one step.
- Each waiter has a future of its own: cancelling one does not affect the others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace
from math import inf
from random import Random
from typing import Final, TypeAlias

from aiokprod.backoff import SHORTEST_BACKOFF_S, Backoff
from aiokprod.cluster.metadata.refresh_schedule import NEVER, RefreshSchedule
from aiokprod.cluster.metadata.slices import in_slices
from aiokprod.cluster.metadata.snapshot import ClusterSnapshot, LeaderHint, TopicSnapshot, merge_answer, merge_in_slices
from aiokprod.config import ProducerConfig
from aiokprod.errors import AiokprodError, ClusterError
from aiokprod.liveness import STALLED_S, SoonCall, Stall
from aiokprod.logs import GuardedLogger
from aiokprod.wire.messages.metadata import MetadataResponse

logger = GuardedLogger(__name__)

FIRST_TIMEOUT_S: Final = 5.0
"""Timeout of the first request. Another broker is asked sooner than `request_timeout_ms` (30 s), because metadata matters
most while a broker is frozen. Doubled for each failure in a row, up to `request_timeout_ms`. Less if
`delivery_timeout_ms` is below 80 s: the answer must come while there is time to use it (`# faults: T21`)."""


MERGES_IN_SLICES: Final = 3
"""Attempts to merge a large answer in slices while hints keep changing the snapshot; then it is merged in one step."""

SHORTEST_TIMEOUT_S: Final = 0.5

Fetch: TypeAlias = Callable[[list[str], float], Awaitable[MetadataResponse]]
"""`await fetch(topics, timeout_s)` asks one broker once, and raises an `AiokprodError` for any answer that cannot be
accepted."""


def delivery_timeout_s(config: ProducerConfig) -> float:
    """Return `delivery_timeout_ms` in seconds."""
    assert config.delivery_timeout_ms is not None  # the config derives it if it is not given
    return config.delivery_timeout_ms / 1000


class MetadataCache:
    """The metadata of the cluster, kept up to date.

    Args:
        config: ages, backoffs and timeouts.
        fetch: asks one broker.
        changed: called synchronously with the previous and the new snapshot.
        answered: called for every answer accepted, after `changed`.
        failed: called for every failed refresh, after `last_failure` is set.
        clock: monotonic seconds; the time of the loop.
        random: the source of jitter.
    """

    def __init__(
        self,
        config: ProducerConfig,
        *,
        fetch: Fetch,
        changed: Callable[[ClusterSnapshot, ClusterSnapshot], None],
        answered: Callable[[], None],
        failed: Callable[[AiokprodError], None],
        clock: Callable[[], float],
        random: Random,
    ) -> None:
        self.snapshot = ClusterSnapshot()
        self.last_failure: AiokprodError | None = None  # the error of the last refresh; None if it succeeded
        self.failing_since: float | None = None
        self.refreshed_at: float | None = None
        self._fetch = fetch
        self._changed = changed
        self._answered = answered
        self._failed = failed
        self._clock = clock
        self._random = random
        self._request_timeout_s = config.request_timeout_ms / 1000
        self._first_timeout_s = min(FIRST_TIMEOUT_S, max(SHORTEST_TIMEOUT_S, delivery_timeout_s(config) / 16))
        self._idle_s = config.metadata_max_idle_ms / 1000
        self._patience_s = max(self._idle_s, config.max_block_ms / 1000)
        max_age_s = config.metadata_max_age_ms / 1000
        least_s, most_s = config.retry_backoff_ms / 1000, config.retry_backoff_max_ms / 1000
        backoff = Backoff(max(least_s, SHORTEST_BACKOFF_S), max(most_s, SHORTEST_BACKOFF_S))
        self._schedule = RefreshSchedule(backoff, max_age_s if max_age_s >= 0 else None)
        self._interest: dict[str, float] = {}  # topic -> when it was last used
        self._wanted: set[str] = set()  # asked for again although their last answer settled them (faults: T4)
        # Records wait for these, so brokers may create them: topic -> when that was last said, and it is true for the longest
        # that a record may wait. Any other topic of interest that is deleted must stay so.
        self._awaited: dict[str, float] = {}
        self._awaited_s = config.max_block_ms / 1000
        self._begun = 0  # number of requests sent
        self._answered_by: dict[str, int] = {}  # topic of interest -> number of the last request answered about it
        self._failures = 0  # in a row
        self._waiters: list[tuple[int, asyncio.Future[None]]] = []  # with the number of the request that each waits for
        self._is_renewing = False
        self._woken = asyncio.Event()
        # The event is not set where the wish comes from: in a deep stack `set` may mark its waiter as done and fail before the
        # task is scheduled, which no later call would do.
        self._wake: SoonCall | None = None  # made on the running loop

    # ------------------------------------------------------------------ what is known

    def topic(self, name: str) -> TopicSnapshot | None:
        """Return a topic that records can be sent to, or None. Counts as a use of the topic."""
        if name in self._interest:
            self._interest[name] = self._clock()
        known = self.snapshot.topics.get(name)
        return known if known is not None and known.is_usable else None

    def last_error(self, name: str) -> tuple[int, Exception | None] | None:
        """Return why a topic is not known: the error code of its last answer, and the error of the last refresh.

        The code is 0 if there was no answer. None if there is neither.
        """
        known = self.snapshot.topics.get(name)
        code = 0 if known is None else known.error_code
        return None if code == 0 and self.last_failure is None else (code, self.last_failure)

    @property
    def next_request(self) -> int:
        """The number of the next request."""
        return self._begun + 1

    def last_answered(self, name: str) -> int:
        """Return the number of the last request whose answer was about this topic; 0 if there was none."""
        return self._answered_by.get(name, 0)

    def age_s(self) -> float | None:
        """Return the seconds since the last answer; None before the first."""
        return None if self.refreshed_at is None else self._clock() - self.refreshed_at

    def failing_s(self) -> float | None:
        """Return the seconds since the first of the failed requests in a row; None if the last one was answered."""
        since = self.failing_since
        return None if since is None else self._clock() - since

    def is_awaited(self, name: str) -> bool:
        """Return whether a record may wait for this topic, so that brokers may create it."""
        return self._clock() - self._awaited.get(name, -inf) <= self._awaited_s

    def _is_settled(self, name: str) -> bool:
        known = self.snapshot.topics.get(name)
        return (known is not None and known.is_usable) or not self.is_awaited(name)

    # ------------------------------------------------------------------ wishes

    def want(self, name: str) -> None:
        """Add a topic to the topics of interest, and ask for it unless it can be used already."""
        is_new = name not in self._interest
        known = self.snapshot.topics.get(name)
        if known is None or not known.is_usable:
            self._wake_task()  # first: at the end of the stack it may raise, and would leave a wish that nothing looks at
            self._awaited[name] = self._clock()
            self._wanted.add(name)
            self._schedule.want(full=False)
            if is_new:
                self._schedule.hurry()
        self._interest[name] = self._clock()

    def refresh(self, why: str) -> None:
        """Ask again about all topics of interest, as soon as the backoff allows, because the snapshot is out of date."""
        if not self._schedule.is_wanted:
            logger.debug("metadata: refresh wanted because %s", why)
        self._wake_task()
        self._schedule.want(full=True)

    def _wake_task(self) -> None:
        wake = self._wake
        if wake is None:
            wake = self._wake = SoonCall(asyncio.get_running_loop(), self._woken.set)
        wake.set()

    async def refreshed(self) -> None:
        """Wait for the answer to a request that is sent after this call.

        Cancellation: only this wait ends; the request is sent nevertheless.
        """
        if not self._schedule.is_wanted:
            self.refresh("a caller waits for it")
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiter = (self._begun + 1, future)
        self._waiters.append(waiter)
        try:
            await future
        finally:
            if waiter in self._waiters:
                self._waiters.remove(waiter)

    def hint_leaders(self, hints: Iterable[LeaderHint]) -> None:
        """Apply the leaders that a broker named (KIP-951), where they are newer, as one change of the snapshot."""
        self._swap(self.snapshot.with_hints(hints))

    # ------------------------------------------------------------------ renewal

    async def run(self) -> None:
        """Refresh the snapshot for ever; the body of the cache's task."""
        while True:
            await self._until_due()
            self._is_renewing = True
            try:
                await self._renew()
            finally:
                self._is_renewing = False

    @property
    def is_asking(self) -> bool:
        """True while a request is under way, or another one will be sent."""
        return self._is_renewing or self._schedule.is_wanted

    def stall(self, now: float) -> Stall | None:
        """Return a stall if a request has been due for some time, and its task sleeps."""
        if self._is_renewing or self._schedule.due_at() > now - STALLED_S:
            return None
        what = "a request for metadata is due, and is not sent"
        return Stall(what, self, None if self._wake is None else self._wake.handle, self._wake_again)

    def _wake_again(self) -> None:
        self._wake_task()
        if self._wake is not None:
            self._wake.set_again()

    async def _until_due(self) -> None:
        while True:
            due_at = self._schedule.due_at()
            if due_at <= self._clock():
                return
            self._woken.clear()
            try:
                async with asyncio.timeout_at(None if due_at == NEVER else due_at):
                    await self._woken.wait()
            except TimeoutError:
                pass

    async def _renew(self) -> None:
        """Send one request to one broker, and apply its answer."""
        self._forget_idle(self._clock())
        full = self._schedule.begin(self._clock())
        wanted, self._wanted = self._wanted & self._interest.keys(), set()
        names = list(self._interest) if full else list({*wanted, *self.snapshot.unsettled(list(self._interest))})
        self._begun += 1
        number = self._begun
        timeout_s = min(self._request_timeout_s, self._first_timeout_s * 2 ** min(self._failures, 16))
        awaited = [name for name in names if self.is_awaited(name)]
        others = [name for name in names if not self.is_awaited(name)]
        try:
            answer = await self._fetch(others or awaited, timeout_s)
            if others and awaited:  # a request has one flag for all its topics: may they be created?
                of_awaited = await self._fetch(awaited, timeout_s)
                answer = replace(of_awaited, topics=[*answer.topics, *of_awaited.topics])
        except AiokprodError as failure:
            self._failures += 1
            self.last_failure = failure
            if self.failing_since is None:
                self.failing_since = self._clock()
            self._wanted |= wanted
            self._schedule.failed(self._clock(), self._random.random(), full=full)
            self._failed(failure)
            return
        self._failures = 0
        self.last_failure = None
        self.failing_since = None
        self.refreshed_at = self._clock()
        self._schedule.answered(self._clock(), self._random.random(), full=full)
        await asyncio.sleep(0)  # between decoding and merging, each of which takes milliseconds (faults: T19)
        merged = await self._merged(answer, names)
        self._answered_by.update((topic.name, number) for topic in answer.topics if topic.name in self._interest)
        for name in self._answered_by.keys() - self._interest.keys():
            del self._answered_by[name]
        self._swap(merged)
        # Of a copy, as above: a finalizer that the collector runs in between may send to a new topic, which is awaited then.
        for name in list(self._awaited):
            if self._is_settled(name):
                del self._awaited[name]
        if self.snapshot.unsettled(self._interest):
            self._schedule.want(full=False)
        self._answered()
        self._wake_waiters(number)

    async def _merged(self, answer: MetadataResponse, names: list[str]) -> ClusterSnapshot:
        """Merge the answer into the snapshot, and start again if a hint changed the snapshot between two slices."""
        for _ in range(MERGES_IN_SLICES):
            before = self.snapshot
            merged = await in_slices(merge_in_slices(before, answer, asked=names, keep=self._interest))
            if self.snapshot is before:
                return merged
        return merge_answer(self.snapshot, answer, asked=names, keep=self._interest)

    def _forget_idle(self, now: float) -> None:
        """Drop topics that have not been used for long; an unknown topic is kept as long as a record may wait for it."""
        for name, used_at in list(self._interest.items()):
            known = self.snapshot.topics.get(name)
            patience_s = self._idle_s if known is not None and known.is_usable else self._patience_s
            if now - used_at >= patience_s:
                del self._interest[name]

    def _swap(self, new: ClusterSnapshot) -> None:
        old = self.snapshot
        if new is not old:
            self.snapshot = new
            self._changed(old, new)

    def _wake_waiters(self, number: int) -> None:
        waiting, self._waiters = self._waiters, []
        for waiter in waiting:
            target, future = waiter
            if target > number:
                self._waiters.append(waiter)
            elif not future.done():
                future.set_result(None)

    def end(self, cause: ClusterError) -> None:
        """Fail all waiters with the error: the client closes."""
        waiting, self._waiters = self._waiters, []
        for _, future in waiting:
            if not future.done():
                future.set_exception(cause.clone())

    def __repr__(self) -> str:
        return f"<MetadataCache version {self.snapshot.version}, {len(self._interest)} topics, {self._schedule}>"
