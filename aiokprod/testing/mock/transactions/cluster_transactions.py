"""`ClusterTransactions`: the running coordinators of a cluster: their brokers, their verdicts, the markers on their way.

One per `MockCluster`. Handlers ask `transactional_ids` and `groups` whether they may answer, change `coordinator` and
`offsets`, and then call `follow`, which carries out what the state of the id asks for: markers, and a look at the clock.
It owns every timer of it; all of it runs on the cluster's loop.

Invariants: every completing id has one `Ending`, or waits for its begin; while a transaction is open the clock is looked
at; after `close` no timer is left.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from aiokprod.testing.mock.cluster_state import ClusterState, RefusalError
from aiokprod.testing.mock.transactions.coordinator import TransactionCoordinator
from aiokprod.testing.mock.transactions.directory import CoordinatorDirectory, partition_of
from aiokprod.testing.mock.transactions.ending import Ending
from aiokprod.testing.mock.transactions.offsets import GroupOffsets

IDLE_ID_MS: Final = 604_800_000
"""transactional.id.expiration.ms."""


class Process(Protocol):
    """A broker's process, as the others see it."""

    is_listening: bool
    is_frozen: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionSettings:
    """The transaction settings of a cluster."""

    version: int
    verifies: bool
    """Whether a partition's first write is checked with the coordinator: since Kafka 3.6."""
    looks_at_epochs: bool
    """See `KafkaRelease`."""
    check_interval_s: float = 10.0
    """transaction.abort.timed.out.transaction.cleanup.interval.ms. broker: 10.7"""
    completion_s: float = 0.0
    """From the verdict to its markers; real ones take some milliseconds (broker: 12.3)."""


class ClusterTransactions:
    """Transactional ids, groups and their coordinators."""

    def __init__(
        self,
        state: ClusterState,
        settings: TransactionSettings,
        now_ms: Callable[[], int],
        process: Callable[[int], Process | None] = lambda _node: None,
    ) -> None:
        self._state = state
        self.settings = settings
        self.now_ms = now_ms
        self._process = process
        self.coordinator = TransactionCoordinator(state.new_producer_id, version=settings.version)
        self.transactional_ids = CoordinatorDirectory(self._nodes)
        self.groups = CoordinatorDirectory(self._nodes)
        self.offsets = GroupOffsets()
        self._endings: dict[str, Ending] = {}
        self._is_held = False
        self._timers: set[asyncio.TimerHandle] = set()
        self._is_clock_on = False
        self._waiting: set[Callable[[], None]] = set()

    def __repr__(self) -> str:
        return f"<ClusterTransactions {self.coordinator!r} completing={list(self._endings)}>"

    def _nodes(self) -> list[tuple[int, bool]]:
        return [(node.node_id, node.is_up) for _, node in sorted(self._state.nodes.items())]

    # ------------------------------------------------------------------ what follows from a request

    def follow(self, transactional_id: str) -> None:
        """Carry out what the state of this id asks for. Nothing if it asks for nothing, or is on its way."""
        found = self.coordinator.ids.get(transactional_id)
        if found is None:
            return
        if found.is_ongoing and not self._is_clock_on:
            self._is_clock_on = True
            self._later(self.settings.check_interval_s, self._look_at_the_clock)
        elif found.is_completing and transactional_id not in self._endings:
            ending = Ending(found, self._state, self.now_ms, lambda: self._complete(transactional_id))
            self._endings[transactional_id] = ending
            if not self._is_held:
                self._begin(transactional_id)

    def _begin(self, transactional_id: str) -> None:
        ending = self._endings[transactional_id]
        if self.settings.completion_s > 0:
            self._later(self.settings.completion_s, lambda: ending.begin(self.offsets))
        else:
            ending.begin(self.offsets)

    def _complete(self, transactional_id: str) -> None:
        del self._endings[transactional_id]
        self.coordinator.complete(transactional_id, self.now_ms())
        self.look_again()

    def is_completing(self, transactional_id: str) -> bool:
        """Return whether markers of this id are still to be written."""
        return transactional_id in self._endings

    # ------------------------------------------------------------------ coordinators as other brokers reach them

    def is_frozen(self, transactional_id: str, asker: int) -> bool:
        """Return whether the coordinator, unless it is the asker itself, takes requests and answers none."""
        process = self._coordinator_process(transactional_id, asker)
        return process is not None and process.is_listening and process.is_frozen

    def answers(self, transactional_id: str, asker: int) -> bool:
        """Return whether the coordinator answers this broker now."""
        process = self._coordinator_process(transactional_id, asker)
        return process is None or (process.is_listening and not process.is_frozen)

    def _coordinator_process(self, transactional_id: str, asker: int) -> Process | None:
        try:
            node = self.transactional_ids.node_of(transactional_id)
        except RefusalError:
            return None
        return None if node == asker else self._process(node)

    # ------------------------------------------------------------------ waiting

    async def until_completed(self, transactional_id: str, timeout_s: float) -> None:
        """Wait until this id is not completing, or the time is over."""
        await self._until(lambda: transactional_id not in self._endings, timeout_s)

    async def until_awake(self, transactional_id: str, asker: int, timeout_s: float) -> None:
        """Wait until the coordinator is not frozen any more, or the time is over."""
        await self._until(lambda: not self.is_frozen(transactional_id, asker), timeout_s)

    def look_again(self) -> None:
        """Call all waiting checks again, because something has changed."""
        for look in tuple(self._waiting):
            look()

    async def _until(self, is_so: Callable[[], bool], timeout_s: float) -> None:
        """Wait until a check succeeds; cancelling only ends the wait."""
        over: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def end() -> None:
            if not over.done():
                over.set_result(None)

        def look() -> None:
            if is_so():
                end()

        timer = self._later(timeout_s, end)
        self._waiting.add(look)
        try:
            look()
            await over
        finally:
            self._waiting.discard(look)
            self._timers.discard(timer)
            timer.cancel()

    # ------------------------------------------------------------------ by the clock

    def abort_timed_out(self) -> list[str]:
        """Abort what is open for longer than its timeout; returns the ids. Called by the clock, or by a test."""
        late = self.coordinator.abort_timed_out(self.now_ms())
        for transactional_id in late:
            self.follow(transactional_id)
        return late

    def _look_at_the_clock(self) -> None:
        self.abort_timed_out()
        self.coordinator.forget_idle(self.now_ms(), IDLE_ID_MS)
        self._is_clock_on = any(found.is_ongoing for found in self.coordinator.ids.values())
        if self._is_clock_on:
            self._later(self.settings.check_interval_s, self._look_at_the_clock)

    def _later(self, seconds: float, call: Callable[[], None]) -> asyncio.TimerHandle:
        def due() -> None:
            self._timers.discard(timer)
            call()

        timer = asyncio.get_running_loop().call_later(seconds, due)
        self._timers.add(timer)
        return timer

    # ------------------------------------------------------------------ what a test does to coordinators

    def hold_markers(self) -> None:
        """Write verdicts from now on, but no markers."""
        self._is_held = True

    def release_markers(self) -> None:
        """Write the markers that were held, and those of later verdicts."""
        if self._is_held:
            self._is_held = False
            for transactional_id in list(self._endings):
                self._begin(transactional_id)

    def move(self, transactional_id: str, node: int) -> None:
        """Let another node coordinate this id, and all that share its partition; it knows what the log says."""
        self.transactional_ids.move(transactional_id, node)
        self._reload([name for name in self.coordinator.ids if partition_of(name) == partition_of(transactional_id)])

    def node_stops(self, node: int) -> None:
        """Drop the state that only the memory of a stopping node holds."""
        self._reload([name for name in self.coordinator.ids if self.transactional_ids.is_led_by(name, node)])

    def _reload(self, names: list[str]) -> None:
        for name in names:
            self.coordinator.reload(name)

    def close(self) -> None:
        """Stop every timer and every wait."""
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()
        for ending in self._endings.values():
            ending.stop()
