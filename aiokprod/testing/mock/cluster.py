"""MockCluster: a Kafka cluster in this process, on real sockets, with the rules of a real broker and scripted faults.

As many as a test likes. Runs on the caller's loop (`async with MockCluster() as cluster`) or on a thread of its own
(`with MockCluster() as cluster`); its methods may be called from any thread and take effect before they return.

    async with MockCluster(brokers=3) as cluster:
        cluster.create_topic("orders", partitions=6)
        ...
        assert [record.value for record in cluster.records("orders")] == [b"one", b"two"]

What it keeps to is measured: producer state, refusals and their order, duplicate answers, hints, throttling, one
request of a connection at a time; transactions with their markers, fences and timeouts; consumer groups. What it has
not: log compaction.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Self

from aiokprod.testing.faults import FaultRules, FaultVerbs
from aiokprod.testing.faults.apis import api_key_of
from aiokprod.testing.mock.broker import MockBroker
from aiokprod.testing.mock.broker_core import BrokerSettings
from aiokprod.testing.mock.broker_verbs import BrokerVerbs
from aiokprod.testing.mock.cluster_state import ClusterState, Node
from aiokprod.testing.mock.coordinator_verbs import CoordinatorVerbs
from aiokprod.testing.mock.counters import Counters
from aiokprod.testing.mock.groups.cluster_groups import ClusterGroups
from aiokprod.testing.mock.groups.settings import GroupSettings
from aiokprod.testing.mock.handlers import APIS
from aiokprod.testing.mock.kafka_versions import (
    NEWEST,
    TRANSACTION_VERSION,
    KafkaRelease,
    release_of,
    transaction_version_of,
)
from aiokprod.testing.mock.listening import MemoryNetwork
from aiokprod.testing.mock.log import TopicSettings
from aiokprod.testing.mock.scram_server import MECHANISMS
from aiokprod.testing.mock.seen_verbs import SeenVerbs
from aiokprod.testing.mock.telemetry_receiver import TelemetryReceiver
from aiokprod.testing.mock.telemetry_verbs import TelemetryVerbs
from aiokprod.testing.mock.topic_verbs import TopicVerbs
from aiokprod.testing.mock.transactions.cluster_transactions import ClusterTransactions, TransactionSettings
from aiokprod.testing.own_thread import LoopHome
from aiokprod.wire.messages.get_telemetry_subscriptions import GetTelemetrySubscriptionsRequest
from aiokprod.wire.messages.push_telemetry import PushTelemetryRequest


def _wall_clock_ms() -> int:
    return time.time_ns() // 1_000_000


class MockCluster(BrokerVerbs, TopicVerbs, CoordinatorVerbs, SeenVerbs, FaultVerbs, TelemetryVerbs):
    """A Kafka cluster in this process. `with` or `async with` starts it.

    Args:
        brokers: number of brokers; their node ids are 1 and up.
        host: address on which the brokers listen.
        ports: fixed ports, one per broker; free ones by default.
        racks: racks, one per broker; None is none.
        kafka_version: the release whose API versions are offered: 4.3, 3.9, 2.8, 2.1.
        transaction_version: the finalized feature transaction.version: 2 (KIP-890) as a new 4.x cluster has it, 1, or
            0 as a cluster that was upgraded; 0 before 4.0.
        transaction_check_interval_ms: milliseconds between two checks of open transactions against their timeouts.
        transaction_completion_ms: milliseconds from the end of a transaction to its markers, which a real broker writes later.
        group_options: a broker's options of groups, by name: `{"group.min.session.timeout.ms": 100}`; see `GroupSettings`.
        api_versions: what is advertised, by API name: (lowest, highest), or None for not at all. Beyond what the codecs
            know nothing is offered.
        features: finalized features of ApiVersions v3+.
        auto_create_topics: auto.create.topics.enable.
        default_partitions: num.partitions.
        topic_defaults: topic options for topics that do not set them, as from a broker's settings.
        producer_expiration_ms: producer.id.expiration.ms, by the records' timestamps (broker: 1.12).
        producer_expiration_check_ms: producer.id.expiration.check.interval.ms (broker: 1.13).
        validate_records: unpack every batch, look at every record and refuse nonsense as a broker does (broker: 13.4,
            13.5). False saves a microsecond per record, and the unpacking, where the mock only has to be fast.
        sasl_mechanisms: a selection of PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER; none means no authentication.
        users: passwords by name; for OAUTHBEARER, tokens by name.
        session_lifetime_ms: connections.max.reauth.ms.
        ssl_context: a server context; every listener then speaks TLS.
        max_request_bytes: socket.request.max.bytes.
        seed: makes topic ids and the cluster id repeatable.
        cluster_id: a name that stays the same over restarts; producers that run take such a cluster for the one they know.
        now_ms: the brokers' wall clock, milliseconds since 1970.
        network: a network in memory instead of sockets, for virtual time (`aiokprod.testing.virtual`).
    """

    def __init__(
        self,
        brokers: int = 3,
        *,
        host: str = "127.0.0.1",
        ports: Sequence[int] | None = None,
        racks: Sequence[str | None] | None = None,
        kafka_version: str = NEWEST,
        transaction_version: int | None = None,
        transaction_check_interval_ms: int = 10_000,
        transaction_completion_ms: float = 0.0,
        group_options: Mapping[str, int] | None = None,
        api_versions: Mapping[str | int, tuple[int, int] | None] | None = None,
        features: Mapping[str, int] | None = None,
        auto_create_topics: bool = True,
        default_partitions: int = 1,
        topic_defaults: Mapping[str, object] | None = None,
        producer_expiration_ms: int = 86_400_000,
        producer_expiration_check_ms: int = 600_000,
        validate_records: bool = True,
        sasl_mechanisms: Sequence[str] = (),
        users: Mapping[str, str] | None = None,
        session_lifetime_ms: int = 0,
        ssl_context: ssl.SSLContext | None = None,
        max_request_bytes: int = 104_857_600,
        seed: int | None = None,
        cluster_id: str | None = None,
        now_ms: Callable[[], int] = _wall_clock_ms,
        network: MemoryNetwork | None = None,
    ) -> None:
        if brokers < 1 or (ports is not None and len(ports) != brokers) or (racks and len(racks) != brokers):
            raise ValueError("a cluster has at least one broker, and a port and a rack for each if any are given")
        unknown = set(sasl_mechanisms) - set(MECHANISMS)
        if unknown:
            raise ValueError(f"unknown SASL mechanisms {sorted(unknown)}; the mock knows {', '.join(MECHANISMS)}")
        self._brokers: dict[int, MockBroker] = {}
        self._release = release = release_of(kafka_version)
        self._home = LoopHome()
        self._faults = FaultRules()
        self._now_ms = now_ms
        self._expiry_check_s = producer_expiration_check_ms / 1000
        self._producer_byte_rates: dict[str, float] = {}
        self._state = ClusterState(
            seed=seed,
            cluster_id=cluster_id,
            default_partitions=default_partitions,
            auto_create_topics=auto_create_topics,
            validate_records=validate_records,
            expiration_ms=producer_expiration_ms,
            waits_for_min_insync=release.waits_for_min_insync,
            topic_defaults={**release.topic_defaults, **TopicSettings.of(topic_defaults or {}).options},
        )
        asked_version = (features or {}).get(TRANSACTION_VERSION, transaction_version)
        version = transaction_version_of(release, asked_version)
        self._transactions = ClusterTransactions(
            self._state,
            TransactionSettings(
                version=version,
                verifies=release.verifies_transactions,
                looks_at_epochs=release.looks_at_epochs,
                check_interval_s=transaction_check_interval_ms / 1000,
                completion_s=transaction_completion_ms / 1000,
            ),
            now_ms,
            self._brokers.get,
        )
        self._state.on_topic_deleted = self._transactions.offsets.forget_topic
        self._groups = ClusterGroups(
            self._state,
            GroupSettings.of(group_options or {}),
            self._transactions.groups,
            self._transactions.offsets,
            is_new=release.has_new_groups,
        )
        self.counters = Counters()
        self._telemetry = TelemetryReceiver()
        self._settings = BrokerSettings(
            state=self._state,
            transactions=self._transactions,
            groups=self._groups,
            faults=self._faults,
            counters=self.counters,
            advertised=_advertised(release, api_versions or {}),
            features={**({TRANSACTION_VERSION: version} if version else {}), **(features or {})},
            now_ms=now_ms,
            host=host,
            sasl_mechanisms=tuple(sasl_mechanisms),
            users=dict(users or {}),
            session_lifetime_s=session_lifetime_ms / 1000,
            ssl_context=ssl_context,
            max_frame_bytes=max_request_bytes,
            network=network,
            producer_byte_rates=self._producer_byte_rates,
            telemetry=self._telemetry,
        )
        self._expiry: asyncio.TimerHandle | None = None
        self._plan = [
            (index + 1, ports[index] if ports else 0, racks[index] if racks else None) for index in range(brokers)
        ]
        for node_id, port, rack in self._plan:
            self._state.nodes[node_id] = Node(node_id, host, port, rack)

    def __repr__(self) -> str:
        return f"<MockCluster {list(self._brokers.values()) or self._state!r}>"

    # ------------------------------------------------------------------ life

    async def __aenter__(self) -> Self:
        self._home.adopt_running_loop()
        self._open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._close()
        self._home.leave()

    def __enter__(self) -> Self:
        self._home.start_thread()
        try:
            self._home.call(self._open)
        except BaseException:
            self._home.leave()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._home.wait(self._close, timeout_s=30.0)
        self._home.leave()

    def _open(self) -> None:
        for node_id, port, rack in self._plan:
            self._open_broker(node_id, port, rack)
        self._check_expiry()

    async def _close(self) -> None:
        self._faults.clear()
        self._transactions.close()
        self._groups.close()
        if self._expiry is not None:
            self._expiry.cancel()
            self._expiry = None
        for broker in self._brokers.values():
            await broker.close()

    def _check_expiry(self) -> None:
        self._state.expire_producers(self._now_ms())
        self._expiry = asyncio.get_running_loop().call_later(self._expiry_check_s, self._check_expiry)

    # ------------------------------------------------------------------ identity, and the clock

    @property
    def cluster_id(self) -> str:
        """As Metadata and DescribeCluster give it."""
        return self._state.cluster_id

    def expire_producers(self) -> int:
        """Run the periodic check of `producer.id.expiration.ms` (broker: 1.12).

        Returns:
            The number of producer states that were removed.
        """
        return self._home.call(lambda: self._state.expire_producers(self._now_ms()))


def _advertised(release: KafkaRelease, caps: Mapping[str | int, tuple[int, int] | None]) -> dict[int, tuple[int, int]]:
    ranges = release.advertised(
        {api.key: (api.advertised_from, api.max_version) for api in APIS.values()},
        {api.key: api.min_version for api in APIS.values()},
    )
    for key in (
        GetTelemetrySubscriptionsRequest.API_KEY,
        PushTelemetryRequest.API_KEY,
    ):  # without a receiver of telemetry a broker does not list them (broker: 23.1)
        ranges.pop(key, None)
    for name, cap in caps.items():
        key = api_key_of(name)
        if cap is None:
            ranges.pop(key, None)
        else:
            ranges[key] = cap
    return ranges
