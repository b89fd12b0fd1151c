"""The scene that the parts of a run share: the cluster, the network, the books, the producers and their hooks."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable
from typing import Any

from aiokprod import Producer
from aiokprod.errors import AiokprodError
from aiokprod.explanation import WaitsFor
from aiokprod.model import ProducerState
from aiokprod.testing import MockCluster
from aiokprod.testing.faults import Rule
from aiokprod.testing.virtual import VirtualNetwork
from aiokprod.testing.virtual.transport import SEND_BUFFER_BYTES

from .books import Account, Books
from .hooks import Hooks, number_of
from .world_values import Step, World

DEFAULT_DELIVERY_S = 120.0
REFUSAL_S = 2.5  # of the way of an answer, and between two samples


class Way:
    """The dialer of a producer that may live on a second loop, which has another network."""

    def __init__(self, network: VirtualNetwork) -> None:
        self.network = network

    async def dial(self, host: str, port: int, ssl_context: Any, factory: Callable[[], asyncio.Protocol]) -> Any:
        """Dial through the current network."""
        return await self.network.dial(host, port, ssl_context, factory)


class Life:
    """One producer, from start to start."""

    def __init__(self, scene: Scene, index: int) -> None:
        self.index = index
        self.number = 0
        """starts so far"""
        self.is_open = False
        """started, and not closed"""
        self.starting = 0
        """calls of start that are under way"""
        self.was_sabotaged = False
        """a third party has cancelled its tasks, or an exception came in code that its loop runs: it may have failed"""
        self.is_ending = False
        """its transaction takes no more records: an end of it was asked for"""
        self.failed_at: dict[tuple[int, int], float] = {}
        """by `key`: a producer that has failed can be closed and started again"""
        self.hooks = Hooks(scene, index)
        options = {**scene.world.options, **self.hooks.options()}
        if "transactional_id" in options:
            options["transactional_id"] = options["transactional_id"].format(index=index)
        self.is_transactional = "transactional_id" in options
        self.way = Way(scene.network)
        options["client_id"] = (
            f"swarm-{scene.world.seed}-{index}"  # one of its own would count the producers of the process
        )
        self.producer = Producer(scene.cluster.bootstrap_servers, dialer=self.way.dial, **options)
        config = self.producer.config
        linger_s, request_s = config.linger_ms / 1000, config.request_timeout_ms / 1000
        given = config.delivery_timeout_ms
        self.delivery_s = given / 1000 if given is not None else max(DEFAULT_DELIVERY_S, linger_s + request_s)
        self.block_s = config.max_block_ms / 1000
        self.request_s = request_s
        self.linger_s = linger_s
        self.waiting_limit_bytes = (
            config.buffer_memory if config.max_waiting_bytes is None else config.max_waiting_bytes
        )

    @property
    def key(self) -> tuple[int, int]:
        """The name of this life in the books."""
        return (self.index, self.number)

    @property
    def failed_count(self) -> int:
        """The number of failed records, as the producer counts them."""
        return int(self.producer.metrics()["records_failed"])

    @property
    def has_failed(self) -> bool:
        """Return whether the producer has crashed."""
        return self.producer.health().state is ProducerState.FAILED


class Scene:
    """The place where a world is played."""

    def __init__(self, world: World, network: VirtualNetwork, events: list[str]) -> None:
        self.world = world
        has_limits = any("max_message_bytes" in topic["config"] for topic in world.topics)
        # With acks=0 a broker says that a batch is too large by ending the connection, again and again.
        self.is_calm = world.is_calm and not (has_limits and world.options.get("acks") == 0)
        self.is_calm &= not world.is_transactional
        self._sent_bytes: dict[tuple[int, int], int] = {}
        self.has_tenants = any(step.kind == "tenants" for step in world.operations)
        self.network = network
        self.events = events
        loop = asyncio.get_running_loop()
        self.loop = loop
        self.began = loop.time()
        self.books = Books(self.now)
        self.cluster = MockCluster(
            network=network,
            seed=world.seed,
            now_ms=lambda: int(1000 * loop.wall_s()),  # type: ignore[attr-defined]
            **world.cluster,
        )
        self.lives: list[Life] = []
        self.tasks: dict[asyncio.Task[Any], str] = {}  # of the world's own, and what they do
        self.healed_at: float | None = None
        self.topic_events: dict[str, list[tuple[float, str, int]]] = {}  # (time, made grown deleted, partitions)
        self.buried: list[tuple[str, int, int, bytes | None]] = []
        """logs of topics that were deleted"""
        self.graves: dict[str, list[Counter[int]]] = {}
        """of each of them, which records it had, and how often"""
        self.refusals: dict[Rule, float] = {}
        """of topics, and when each was last seen in force"""
        self._sampled = 0
        """accounts that were looked at once"""
        self._open: list[Account] = []
        self._unasked: list[Account] = []  # failed while nothing listened; some of them are asked later
        """those of them whose record has no outcome yet"""
        self.is_ending = False
        """the last closes come: nothing starts a producer from now on"""
        self.is_over = False
        self.deals: list[Any] = []
        """transactions (`transacts.Deal`), in the order in which they began"""
        self.fences: list[tuple[int, str]] = []
        """producers that were told that another instance has their id"""
        self.is_planting = False
        """a call meets a fault that the world says"""
        self.send_again: Callable[[int], None] = _nothing
        """user code that is called by a producer sends by it"""
        self.close_soon: Callable[[int], None] = _nothing
        """user code that is called by a producer closes it"""

    def now(self) -> float:
        """Return seconds by the loop's clock, which is almost 0 when the world begins."""
        return self.loop.time()

    def tell(self, event: str) -> None:
        """Add an event to the story."""
        if len(self.events) < 2_000:
            self.events.append(f"{self.now():10.4f} s  {event}")

    def spawn(self, work: Coroutine[Any, Any, object], name: str) -> asyncio.Task[Any]:
        """Start a task of the world."""
        task = self.loop.create_task(work, name=f"world-{name}")
        self.tasks[task] = name
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        name = self.tasks.pop(task)
        if not task.cancelled() and (bug := task.exception()) is not None:
            self.books.wrong(f"bare {type(bug).__name__}", f"{name}: {bug!r:.500}")

    def later(self, seconds: float, call: Callable[..., object], *arguments: object) -> None:
        """Call it later, unless the world is over by then."""
        self.loop.call_later(seconds, self._unless_over, call, *arguments)

    def _unless_over(self, call: Callable[..., object], *arguments: object) -> None:
        if not self.is_over:
            call(*arguments)

    def hop(self, hops: int, call: Callable[[Step], object], step: Step) -> None:
        """Call it so many turns of the loop later."""
        if hops <= 0:
            call(step)
        else:
            self.loop.call_soon(self.hop, hops - 1, call, step)

    # ------------------------------------------------------------------ topics
    def note_topic(self, topic: str, what: str, partitions: int) -> None:
        """Note that a topic was created, grown or deleted."""
        self.topic_events.setdefault(topic, []).append((self.now(), what, partitions))

    def partitions_of(self, topic: str) -> int:
        """Return the current number of partitions; 0: no such topic."""
        return self.cluster.topics.get(topic, 0)

    def was_deleted(self, topic: str) -> bool:
        """Return whether the topic was ever deleted."""
        return any(what == "deleted" for _, what, _ in self.topic_events.get(topic, ()))

    def create_topic(self, topic: str, partitions: int, config: dict[str, Any]) -> None:
        """Create the topic, unless it exists."""
        if not self.partitions_of(topic):
            self.cluster.create_topic(topic, partitions=partitions, **config)
            self.note_topic(topic, "made", partitions)

    def grow_to(self, topic: str, partitions: int) -> None:
        """Add partitions, unless the topic has as many."""
        if 0 < self.partitions_of(topic) < partitions:
            self.cluster.add_partitions(topic, partitions)
            self.note_topic(topic, "grown", partitions)

    def bury(self, topic: str) -> None:
        """Keep the log of a topic that is about to go."""
        self.graves.setdefault(topic, []).append(self.counted(topic))
        for record in self.cluster.records(topic):
            self.buried.append((topic, record.partition, record.offset, record.value))

    def counted(self, topic: str) -> Counter[int]:
        """Return how often each record is in the current topic."""
        there = self.cluster.records(topic) if self.partitions_of(topic) else ()
        return Counter(number_of(record.value) for record in there)

    def was_refused_since(self, began: float) -> bool:
        """Return whether an answer may have said TOPIC_AUTHORIZATION_FAILED since then, or was on its way."""
        return any(not rule.is_spent or seen > began - REFUSAL_S for rule, seen in self.refusals.items())

    # ------------------------------------------------------------------ samples
    def sample(self) -> None:
        """Check what must hold at any moment."""
        for rule in self.refusals:
            if not rule.is_spent:
                self.refusals[rule] = self.now()
        for life in self.lives:
            health = life.producer.health()
            used = health.buffered_bytes
            pipeline = life.producer._pipeline
            if self.world.end.get("counts_charges") and pipeline is not None:
                used = pipeline.parking.gate.used_bytes  # health() says no more than the limit
            limit = life.producer.config.buffer_memory
            if used < 0:
                self.books.wrong("bytes below zero", f"{used} bytes are charged")
            if used > limit:
                self.books.wrong("bytes above the limit", f"{used} bytes are charged, buffer_memory is {limit}")
            if health.state is ProducerState.FAILED and life.key not in life.failed_at:
                life.failed_at[life.key] = self.now()
                if not life.was_sabotaged and not life.is_transactional:  # those are judged by `judge_transactions`
                    self.books.wrong("producer failed", f"producer {life.index}: {health.last_error!r:.400}")
        self._sample_accounts()

    def _ask_late(self) -> None:
        """Ask for the failures of some records that nothing listened to, in time or too late; no task and no draw is needed."""
        still_unasked = []
        for account in self._unasked:
            at = account.settled_at()
            if account.delivery is None or at is None or account.listeners:
                continue
            if self.now() < at + account.number % 8:
                still_unasked.append(account)
            elif isinstance(error := account.handle_error(), AiokprodError):
                self.books.listen(account)
                self.books.hear(account, error)
                self.books.leave(account)
        self._unasked = still_unasked

    def _sample_accounts(self) -> None:
        held = dict.fromkeys(range(len(self.lives)), 0)
        self._open += self.books.accounts[self._sampled :]
        self._sampled = len(self.books.accounts)
        still_open = []
        for account in self._open:
            delivery = account.delivery
            if delivery is None:
                continue
            if account.first_seen is None:
                account.first_seen = account.seen()
            holder, index = delivery._position()
            if not holder.is_settled(index):
                held[account.life[0]] += account.size
                self._note_room(account)
                still_open.append(account)
            elif not account.listeners and not account.number % 3 and not delivery.cancelled():
                self._unasked.append(account)
        self._open = still_open
        self._ask_late()
        for life in self.lives:
            most = life.producer.config.buffer_memory + life.waiting_limit_bytes
            if held[life.index] > most:
                text = (
                    f"producer {life.index} holds {held[life.index]} bytes of values; both limits together are {most}"
                )
                self.books.wrong("more accepted than there is room", text)

    def is_slow(self, life: Life) -> bool:
        """Return whether this producer's largest request may take the longest time: then nothing is sure to arrive."""
        _, latency_s = self.world.weather.get("latency_s", (0.0, 0.0))
        known = (life.index, len(self.books.accounts))
        if known not in self._sent_bytes:  # each record of a world asks
            sent = (account.size + 70 for account in self.books.accounts if account.life[0] == life.index)
            self._sent_bytes[known] = sum(sent)
        windows = (
            min(self._sent_bytes[known], life.producer.config.max_request_size) / SEND_BUFFER_BYTES
        )  # one at a time
        return float(latency_s * (2 + windows)) >= life.producer.config.request_timeout_ms / 1000

    def is_well_since(self, moment: float, life: Life) -> bool:
        """Return whether records of this producer can arrive since then."""
        return not self.is_slow(life) and self.healed_at is not None and self.healed_at < moment

    def calm_s(self, life: Life) -> float:
        """Return how long a record may take without faults; records of missing topics hold room until they are refused."""
        return 3.0 + (life.block_s if self.has_tenants else 0.0)

    def round_trips_s(self, life: Life, accounts: Iterable[Account]) -> float:
        """Return how long the round trips of these records take with one batch in flight."""
        latency_s = self.world.weather.get("latency_s", (0.0, 0.002))[1]
        topics = [topic["config"] for topic in self.world.topics]
        topics += [step.args["config"] for step in self.world.faults if step.kind == "alter"]
        limits = (config.get("max_message_bytes", 1_000_000) for config in topics)  # larger batches are sent in parts
        size = max(1, min(life.producer.config.batch_size, *limits))  # 0: each record goes alone
        return float(2 * latency_s * sum(min(1.0, (account.size + 70) / size) for account in accounts))

    def ahead_s(self, account: Account) -> float:
        """Return the round trips of earlier records that were not settled when this one was sent."""
        if self.now() <= account.sent_at + 3.0:
            return 0.0  # it is asked only of what takes long
        earlier = self.books.accounts[: account.number + 1]
        ahead = [
            a for a in earlier if a.life == account.life and ((at := a.settled_at()) is None or at >= account.sent_at)
        ]
        return self.round_trips_s(self.lives[account.life[0]], ahead)

    def _note_room(self, account: Account) -> None:
        if not self.is_calm or self.hooks_are_slow:
            return
        assert account.delivery is not None
        is_waiting = account.delivery.explain().waits_for is WaitsFor.ROOM
        if not is_waiting:
            account.room_since = None
        elif account.room_since is None:
            account.room_since = self.now()
        elif self.now() - account.room_since > self.calm_s(self.lives[account.life[0]]) + self.ahead_s(account):
            is_told = any(kind == "waits for room in calm" for kind, _ in self.books.wrongs)
            if not is_told and not self.is_slow(self.lives[account.life[0]]):
                self.books.wrong(
                    "waits for room in calm", f"{account} has waited for {self.now() - account.room_since} s"
                )

    @property
    def hooks_are_slow(self) -> bool:
        """Return whether serializers take time, which is a reason to wait."""
        serializer = self.world.hooks.get("serializer", {})
        return bool(serializer.get("seconds") or serializer.get("hang_every"))


def _nothing(index: int) -> None:
    """Ignore the call: the default until the parts are joined."""
