"""Neighbours of a stage under test: stages that note what they are told, and a loop whose time the test moves."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from heapq import heappop, heappush
from itertools import count
from random import Random
from typing import Any

from aiokprod.cluster.client import ClusterClient
from aiokprod.cluster.owned_tasks import OwnedTasks
from aiokprod.config import ProducerConfig
from aiokprod.errors import AiokprodError
from aiokprod.interceptor_chain import InterceptorChain
from aiokprod.logs import StateLog
from aiokprod.metrics import Metrics
from aiokprod.pipeline.broker.aggregator import BrokerAggregator
from aiokprod.pipeline.broker.flusher import BrokerFlusher
from aiokprod.pipeline.delivery.delivery import Delivery
from aiokprod.pipeline.delivery.delivery_reports import DeliveryReports
from aiokprod.pipeline.delivery.unhandled_errors import UnhandledErrors
from aiokprod.pipeline.effects import Effects
from aiokprod.pipeline.partition.batch import Encoded
from aiokprod.pipeline.partition.context import PipelineContext
from aiokprod.pipeline.partition.flushes import Flushes
from aiokprod.pipeline.partition.ledger import Entry, Ledger
from aiokprod.pipeline.partition.parked_record import ParkedRecord
from aiokprod.pipeline.partition.partition_errors import PartitionErrors
from aiokprod.pipeline.partition.partition_queue import PartitionQueue
from aiokprod.pipeline.partition.settings import PipelineSettings
from aiokprod.pipeline.sending.admission import AdmissionGate


class ManualLoop(asyncio.AbstractEventLoop):
    """A loop that runs callbacks when the test lets it; its time moves when the test moves it."""

    def __init__(self) -> None:
        self.now = 100.0
        self.soon: deque[asyncio.Handle] = deque()
        self.timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._order = count()

    def time(self) -> float:
        return self.now

    def get_debug(self) -> bool:
        return False

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def call_soon(self, callback: Callable[..., object], *args: Any, context: Any = None) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        self.soon.append(handle)
        return handle

    def call_at(self, when: float, callback: Callable[..., object], *args: Any, context: Any = None) -> Any:
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        heappush(self.timers, (when, next(self._order), handle))
        return handle

    def call_later(self, delay: float, callback: Callable[..., object], *args: Any, context: Any = None) -> Any:
        return self.call_at(self.now + delay, callback, *args, context=context)

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Ignore what asyncio tells its loops."""

    @property
    def armed(self) -> list[float]:
        """The times at which timers fire that were not cancelled."""
        return sorted(when for when, _, handle in self.timers if not handle.cancelled())

    def run(self) -> None:
        """Run the callbacks that are due now."""
        while self.soon:
            handle = self.soon.popleft()
            if not handle.cancelled():
                handle._run()

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self.now += seconds
        while self.timers and self.timers[0][0] <= self.now:
            handle = heappop(self.timers)[2]
            if not handle.cancelled():
                handle._run()
        self.run()

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        raise context["exception"]


class StubQueue(PartitionQueue):
    """A partition queue that offers what the test puts in and keeps what it is told."""

    def __init__(self, name: str, node: int = 1) -> None:
        self.topic = name
        self.partition = 0
        self.node = node
        self.texts = PartitionErrors(name, 0)
        self.timeline = None
        self.ledger = Ledger(
            node=node, leader_epoch=0, topic_id=bytes(16), identity=(1, 0), idempotent=True, transactional=False,
            window=5, retry_delay=float,
        )  # fmt: skip
        self.offers: deque[tuple[Entry, Encoded | None]] = deque()
        self.asked: list[bool] = []
        self.returns = 0
        self.identities: list[tuple[int, int]] = []
        self.values: list[bytes | None] = []

    def offer(self, size_bytes: int, *, is_encoded: bool = True) -> Entry:
        """Offer a batch of so many bytes, its header included."""
        entry = Entry(len(self.offers), None)  # type: ignore[arg-type]  # nothing looks into the batch here
        self.offers.append((entry, Encoded(bytes(size_bytes - 61), "none") if is_encoded else None))
        return entry

    def candidate(self, now: float, now_ms: int, urgent: bool) -> Entry | None:
        self.asked.append(urgent)
        return self.offers[0][0] if self.offers else None

    def prepare(self, entry: Entry) -> Encoded | None:
        assert entry is self.offers[0][0]
        return self.offers[0][1]

    def take(self, now: float, now_ms: int) -> Entry | None:
        return self.offers.popleft()[0]

    def returned(self) -> None:
        self.returns += 1

    def granted(self, identity: tuple[int, int]) -> None:
        self.identities.append(identity)

    def append(
        self,
        value: bytes | None,
        key: bytes | None,
        headers: bytes | None,
        timestamp_ms: int,
        size_bytes: int,
        now: float,
    ) -> Delivery:
        self.values.append(value)
        return None  # type: ignore[return-value]  # the dispatcher passes it on unseen

    def append_parked(self, record: ParkedRecord) -> None:
        self.values.append(record.value)

    def __repr__(self) -> str:
        return f"<{self.topic}>"


class GateDesk:
    """A gate and what a pipeline has beside it: the effects, which grant the room that a state change frees."""

    def __init__(
        self,
        limit_bytes: int = 100,
        waiting_bytes: int = 10_000,
        admit: Callable[[ParkedRecord], None] | None = None,
    ) -> None:
        self.admitted: list[ParkedRecord] = []
        self.gate = AdmissionGate(limit_bytes, waiting_bytes, admit or self.admitted.append, self._room_is_free)
        self.effects = Effects(self.gate.grant, self._crashed)

    def _room_is_free(self) -> None:
        self.effects.room_is_due = True

    def _crashed(self, bug: BaseException) -> None:
        raise bug

    def free(self, charge_bytes: int) -> None:
        """Free so many bytes."""
        self.effects.begin()
        self.gate.free(charge_bytes)
        self.effects.end()

    def leave(self, record: ParkedRecord) -> None:
        """Let the record leave the line."""
        self.effects.begin()
        self.gate.leave(record)
        self.effects.end()

    def release(self, record: ParkedRecord) -> None:
        """Release the estimate of the record."""
        self.effects.begin()
        self.gate.release(record)
        self.effects.end()

    def abandon(self, error: Callable[[], AiokprodError]) -> None:
        """Give tasks no room any more."""
        self.effects.begin()
        self.gate.abandon(error)
        self.effects.end()


class StubReadySet(BrokerAggregator):
    def __init__(self) -> None:
        self.removed: list[object] = []
        self.were_ready: list[object] = []
        self.were_urged: list[object] = []

    def ready(self, queue: PartitionQueue) -> None:
        self.were_ready.append(queue)

    def urged(self, queue: PartitionQueue) -> None:
        self.were_urged.append(queue)

    def remove(self, queue: object) -> None:
        self.removed.append(queue)

    def waiting(self) -> list[PartitionQueue]:
        return [queue for queue in self.were_ready if isinstance(queue, PartitionQueue)]


class StubFlusher(BrokerFlusher):
    """A flusher that has something in flight, or nothing."""

    def __init__(self, *, is_flying: bool = False) -> None:
        self.aggregator = self.ready_set = StubReadySet()
        self.is_flying = is_flying
        self.chased: list[object] = []
        self._ended = False
        self.woken: list[bool] = []

    def chase(self, queue: object) -> bool:
        self.chased.append(queue)
        return self.is_flying

    def wake(self, somebody_waits: bool) -> None:
        self.woken.append(somebody_waits)


class StubClient(ClusterClient):
    """A cluster that notes why it is asked for metadata."""

    def __init__(self) -> None:
        self.refreshes: list[str] = []

    def refresh(self, why: str) -> None:
        self.refreshes.append(why)


class StubTasks(OwnedTasks):
    """Tasks that never begin."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def spawn(self, work: Coroutine[Any, Any, None], name: str) -> Any:
        work.close()
        self.names.append(name)


def context_of(
    loop: asyncio.AbstractEventLoop, crashed: Callable[[BaseException], None] | None = None, **options: Any
) -> PipelineContext:
    """Return what the stages of a pipeline share, without a pipeline; a crash raises, if nothing takes it."""

    def fail(cause: BaseException) -> None:
        raise cause

    config = ProducerConfig(bootstrap_servers="localhost:1", **options)
    log = StateLog("producer")
    interceptors = InterceptorChain((), log)
    effects = Effects(lambda: None, crashed or fail)
    reports = DeliveryReports(loop, effects, interceptors, UnhandledErrors(None, log))
    settings = PipelineSettings.from_config(config)
    return PipelineContext(
        config, settings, loop, Random(1), Metrics(), log, interceptors, effects, Flushes(loop), StubTasks(), reports
    )


def parked(
    loop: asyncio.AbstractEventLoop,
    value: bytes = b"v",
    *,
    charge_bytes: int = 10,
    partition: int | None = None,
    block_deadline: float = 1e9,
    topic: str = "t",
) -> ParkedRecord:
    """Return a record on its way."""
    record = ParkedRecord(loop, topic, loop.time(), block_deadline, 0, lambda _record, _error: None)
    record.value, record.partition = value, partition
    record.size_bytes = record.charge_bytes = charge_bytes
    return record
