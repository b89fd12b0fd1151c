"""`BrokerCore`: what a mock broker serves requests from, and its tasks and timers. The base of `MockBroker`.

Handlers and connections know this much of their broker; what opens, listens and ends is above.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field

from aiokprod.testing.faults import FaultRules
from aiokprod.testing.mock.cluster_state import ClusterState
from aiokprod.testing.mock.counters import Counters
from aiokprod.testing.mock.groups.cluster_groups import ClusterGroups
from aiokprod.testing.mock.listening import MemoryNetwork
from aiokprod.testing.mock.quotas import ClientQuotas
from aiokprod.testing.mock.telemetry_receiver import TelemetryReceiver
from aiokprod.testing.mock.transactions.cluster_transactions import ClusterTransactions


@dataclass(slots=True, kw_only=True)
class BrokerSettings:
    """The state and settings that all brokers of a cluster share."""

    state: ClusterState
    transactions: ClusterTransactions
    groups: ClusterGroups
    faults: FaultRules
    counters: Counters
    advertised: Mapping[int, tuple[int, int]]
    features: Mapping[str, int]
    now_ms: Callable[[], int]
    host: str = "127.0.0.1"
    sasl_mechanisms: Sequence[str] = ()
    users: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    session_lifetime_s: float = 0.0
    ssl_context: ssl.SSLContext | None = None
    network: MemoryNetwork | None = None
    max_frame_bytes: int = 104_857_600
    """socket.request.max.bytes. broker: 13.2"""
    telemetry: TelemetryReceiver = field(default_factory=TelemetryReceiver)
    """What clients are asked for. broker: 23"""
    producer_byte_rates: Mapping[str, float] = field(default_factory=dict[str, float])
    """Quotas by client id. broker: 14"""


class BrokerCore:
    """The facts that requests are answered from; tasks and timers that end with the broker."""

    def __init__(self, node_id: int, settings: BrokerSettings) -> None:
        self.node_id = node_id
        self.state = settings.state
        self.transactions = settings.transactions
        self.groups = settings.groups
        self.faults = settings.faults
        self.counters = settings.counters
        self.advertised = dict(settings.advertised)
        self.features = settings.features
        self.features_epoch = 0
        self.now_ms = settings.now_ms
        self.sasl_mechanisms = settings.sasl_mechanisms
        self.users = settings.users
        self.session_lifetime_s = settings.session_lifetime_s
        self.max_frame_bytes = settings.max_frame_bytes
        self.telemetry = settings.telemetry
        self.quotas = ClientQuotas(settings.producer_byte_rates)
        self.is_frozen = False
        """As a stopped process: connections open, nothing read and nothing written."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._timers: set[asyncio.TimerHandle] = set()

    def spawn(self, work: Coroutine[object, object, None], name: str) -> asyncio.Task[None]:
        """Run a task that the broker owns."""
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def later(self, seconds: float, call: Callable[[], None]) -> None:
        """Call back, unless the broker stops before."""

        def due() -> None:
            self._timers.discard(timer)
            call()

        timer = asyncio.get_running_loop().call_later(seconds, due)
        self._timers.add(timer)

    def monotonic(self) -> float:
        """Return the time of the loop."""
        return asyncio.get_running_loop().time()
