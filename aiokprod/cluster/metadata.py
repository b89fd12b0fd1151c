"""`MetadataCache`: the current `ClusterSnapshot`, which topics it is about, and when it is renewed.

One per start of a `ClusterClient`, which gives it a way to ask (`fetch`) and runs its one task (`run`).

    want, refresh, age  ->  RefreshSchedule  ->  fetch (one broker, one answer)  ->  merge_answer  ->  changed(old, new)
                                  ^                                                      |
                                  +---- topics without leader, unknown, in error <-------+

Invariants:

- At most one request is in flight; any number of wishes is one request (`# faults: T14`).
- Only topics somebody uses are asked for. A wish for a new topic, and what an answer left unsettled, asks for those
  alone; everything else asks for all.
- An answer is taken whole or not at all, and the snapshot is swapped in one step.
- A waiter has a future of its own: cancelling one touches nobody.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from random import Random
from typing import Final, TypeAlias

from aiokprod.backoff import Backoff
from aiokprod.cluster.refresh_schedule import NEVER, RefreshSchedule
from aiokprod.cluster.slices import in_slices
from aiokprod.cluster.snapshot import ClusterSnapshot, LeaderHint, TopicSnapshot, merge_answer, merge_in_slices
from aiokprod.config import ProducerConfig
from aiokprod.errors import AiokprodError, ClusterError
from aiokprod.wire.messages.metadata import MetadataResponse

logger = logging.getLogger(__name__)

FIRST_TIMEOUT_S: Final = 5.0
"""How long the first broker may take to answer: another one is asked sooner than `request_timeout_ms` (30 s), because a
frozen broker is when news are needed most. Doubled for each failure in a row, up to `request_timeout_ms`. Less where
`delivery_timeout_ms` is below 80 s: news must come while there is time to use them (`# faults: T21`)."""


MERGES_IN_SLICES: Final = 3
"""Attempts to merge a large answer while hints keep changing what it is merged with; then it is done at once."""

SHORTEST_TIMEOUT_S: Final = 0.5

SHORTEST_BACKOFF_S: Final = 0.01
"""A backoff of 0 ms shall not become a busy loop of requests (`# faults: M14`)."""

Fetch: TypeAlias = Callable[[list[str], float], Awaitable[MetadataResponse]]
"""`await fetch(topics, timeout_s)`: asks one broker once; raises an `AiokprodError` for anything that is no answer to
be believed."""


def delivery_timeout_s(config: ProducerConfig) -> float:
    """How long records have to be delivered."""
    assert config.delivery_timeout_ms is not None  # derived when it is not given
    return config.delivery_timeout_ms / 1000


class MetadataCache:
    """What we know of the cluster.

    Args:
        config: ages, backoffs and timeouts.
        fetch: asks one broker.
        changed: told synchronously of every new snapshot, with the one before.
        answered: told of every answer taken, after `changed`.
        failed: told of every failed refresh, after `last_failure` is set.
        clock: seconds, monotonic; the time of the loop.
        random: for jitter.
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
        self.last_failure: AiokprodError | None = None  # of the last refresh; None once one succeeds
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
        self._wanted: set[str] = set()  # to be asked for again though their last answer settled them (faults: T4)
        self._begun = 0  # requests
        self._answered_by: dict[str, int] = {}  # topic of interest -> the last request that was answered about it
        self._failures = 0  # in a row
        self._waiters: list[tuple[int, asyncio.Future[None]]] = []  # which request's answer each waits for
        self._woken = asyncio.Event()

    # -- what is known --------------------------------------------------------------------------------------------

    def topic(self, name: str) -> TopicSnapshot | None:
        """A topic that records can be given to, or None. Counts as use of it."""
        if name in self._interest:
            self._interest[name] = self._clock()
        known = self.snapshot.topics.get(name)
        return known if known is not None and known.is_usable else None

    def last_error(self, name: str) -> tuple[int, Exception | None] | None:
        """Why a topic is not known: the error code of the last answer about it (0: there was none), and what the last
        refresh failed of. None if there is nothing to tell."""
        known = self.snapshot.topics.get(name)
        code = 0 if known is None else known.error_code
        return None if code == 0 and self.last_failure is None else (code, self.last_failure)

    @property
    def next_request(self) -> int:
        """The number of the request that is sent next."""
        return self._begun + 1

    def last_answered(self, name: str) -> int:
        """The number of the last request whose answer was about this topic; 0: there was none."""
        return self._answered_by.get(name, 0)

    def age_s(self) -> float | None:
        """Seconds since the last answer; None before the first."""
        return None if self.refreshed_at is None else self._clock() - self.refreshed_at

    def failing_s(self) -> float | None:
        """Seconds since the first of the requests in a row that failed; None: the last one was answered."""
        since = self.failing_since
        return None if since is None else self._clock() - since

    # -- wishes ---------------------------------------------------------------------------------------------------

    def want(self, name: str) -> None:
        """Be interested in a topic from now on, and ask for it if it cannot be used as it is."""
        is_new = name not in self._interest
        self._interest[name] = self._clock()
        known = self.snapshot.topics.get(name)
        if known is None or not known.is_usable:
            self._wanted.add(name)
            self._schedule.want(full=False)
            if is_new:
                self._schedule.hurry()
            self._woken.set()

    def refresh(self, why: str) -> None:
        """What we know is out of date: ask again about all topics of interest, as soon as the backoff allows."""
        if not self._schedule.is_wanted:
            logger.debug("metadata: refresh wanted because %s", why)
        self._schedule.want(full=True)
        self._woken.set()

    async def refreshed(self) -> None:
        """Wait for the answer to a request that is sent after this call.

        Cancellation: gives up the wait; nobody else notices.
        """
        if not self._schedule.is_wanted:
            self.refresh("somebody waits for news")
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiter = (self._begun + 1, future)
        self._waiters.append(waiter)
        try:
            await future
        finally:
            if waiter in self._waiters:
                self._waiters.remove(waiter)

    def hint_leaders(self, hints: Iterable[LeaderHint]) -> None:
        """A broker said who leads (KIP-951); taken only if it is news, and told as one change."""
        self._swap(self.snapshot.with_hints(hints))

    # -- renewal --------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Renew for ever; the task of the cache."""
        while True:
            await self._until_due()
            await self._renew()

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
        """One request to one broker."""
        self._forget_idle(self._clock())
        full = self._schedule.begin(self._clock())
        wanted, self._wanted = self._wanted & self._interest.keys(), set()
        names = list(self._interest) if full else list({*wanted, *self.snapshot.unsettled(self._interest)})
        self._begun += 1
        number = self._begun
        timeout_s = min(self._request_timeout_s, self._first_timeout_s * 2 ** min(self._failures, 16))
        try:
            answer = await self._fetch(names, timeout_s)
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
        await asyncio.sleep(0)  # decoding took its time, merging takes as much again (faults: T19)
        merged = await self._merged(answer, names)
        self._answered_by.update((topic.name, number) for topic in answer.topics if topic.name in self._interest)
        for name in self._answered_by.keys() - self._interest.keys():
            del self._answered_by[name]
        self._swap(merged)
        if self.snapshot.unsettled(self._interest):
            self._schedule.want(full=False)
        self._answered()
        self._wake_waiters(number)

    async def _merged(self, answer: MetadataResponse, names: list[str]) -> ClusterSnapshot:
        """The answer on top of what is known when it is done: a hint may come between two slices."""
        for _ in range(MERGES_IN_SLICES):
            before = self.snapshot
            merged = await in_slices(merge_in_slices(before, answer, asked=names, keep=self._interest))
            if self.snapshot is before:
                return merged
        return merge_answer(self.snapshot, answer, asked=names, keep=self._interest)

    def _forget_idle(self, now: float) -> None:
        """Topics nobody used for long leave; one that never appeared stays as long as a record may wait for it."""
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
        """The client closes: whoever still waits for news is told so."""
        waiting, self._waiters = self._waiters, []
        for _, future in waiting:
            if not future.done():
                future.set_exception(cause.clone())

    def __repr__(self) -> str:
        return f"<MetadataCache version {self.snapshot.version}, {len(self._interest)} topics, {self._schedule}>"
