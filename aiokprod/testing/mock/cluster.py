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
from aiokprod.testing.mock.topic_verbs import TopicVerbs
from aiokprod.testing.mock.transactions.cluster_transactions import ClusterTransactions, TransactionSettings
from aiokprod.testing.own_thread import LoopHome


def _wall_clock_ms() -> int:
    return time.time_ns() // 1_000_000


class MockCluster(TopicVerbs, CoordinatorVerbs, SeenVerbs, FaultVerbs):
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
        sasl_mechanisms: a selection of PLAIN, SCRAM-SHA-256, SCRAM-SHA-512; none means no authentication.
        users: passwords by name.
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
        self._groups = ClusterGroups(
            self._state,
            GroupSettings.of(group_options or {}),
            self._transactions.groups,
            self._transactions.offsets,
            is_new=release.has_new_groups,
        )
        self.counters = Counters()
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

    def _open_broker(self, node_id: int, port: int, rack: str | None) -> None:
        broker = MockBroker(node_id, self._settings, port)
        self._brokers[node_id] = broker
        self._state.nodes[node_id] = Node(node_id, broker.host, broker.port, rack)
        broker.start()

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

    # ------------------------------------------------------------------ brokers

    @property
    def bootstrap_servers(self) -> str:
        """`host:port,host:port`, every broker, up or down."""
        return ",".join(f"{broker.host}:{broker.port}" for broker in self._brokers.values())

    @property
    def cluster_id(self) -> str:
        """As Metadata and DescribeCluster give it."""
        return self._state.cluster_id

    @property
    def broker_ids(self) -> list[int]:
        """All node ids, up or down."""
        return list(self._state.nodes)

    def broker(self, node: int) -> MockBroker:
        """Return a broker: its port, its connections.

        Args:
            node: node id.

        Raises:
            ValueError: there is no broker with this id (as in all methods with a `node`).
        """
        broker = self._brokers.get(node)
        if broker is None:
            raise ValueError(f"no broker {node}: the brokers are {', '.join(map(str, self._brokers))}")
        return broker

    def stop_broker(self, node: int) -> None:
        """Stop a broker in order: leaders move first, then connections get FIN (broker: 15.2, without its grace time).

        Args:
            node: node id.

        Raises:
            ValueError: there is no broker with this id.
        """
        self._home.call(lambda: self._down(node, abort=False, elect=True, lose_uncopied=False))

    def kill_broker(self, node: int, *, elect: bool = True, lose_uncopied: bool = True) -> None:
        """Stop a broker as SIGKILL does: connections get RST.

        Args:
            node: node id.
            elect: False leaves metadata as it is, as before the session timeout (broker: 8.1b), until `elect_leaders`.
            lose_uncopied: True loses the records that only this leader has; False lets the new leader have them.

        Raises:
            ValueError: there is no broker with this id.
        """
        self._home.call(lambda: self._down(node, abort=True, elect=elect, lose_uncopied=lose_uncopied))

    def elect_leaders(self, node: int) -> None:
        """End the session of a broker that was killed with `elect=False`: its partitions get other leaders.

        Args:
            node: node id.
        """
        self._home.call(lambda: self._state.node_down(node, elect=True, lose_uncopied=True))

    def start_broker(self, node: int) -> None:
        """Start a stopped broker again, on its port.

        It remembers one batch per producer (broker: 2.6), and leads its partitions that have no leader.

        Args:
            node: node id.

        Raises:
            ValueError: there is no broker with this id.
        """

        def start() -> None:
            broker = self.broker(node)
            self._state.node_up(node, self._now_ms())
            broker.start()

        self._home.call(start)

    def add_broker(self, *, rack: str | None = None) -> int:
        """Add a broker, without replicas.

        Args:
            rack: its rack; None is none.

        Returns:
            Its node id.
        """

        def add() -> int:
            node_id = max(self._state.nodes) + 1
            self._open_broker(node_id, 0, rack)
            return node_id

        return self._home.call(add)

    def advertise(self, node: int, host: str, port: int) -> None:
        """Set the address that metadata names for a broker, for example that of a proxy.

        Args:
            node: node id.
            host: host name or IP address.
            port: port number.
        """

        def advertise() -> None:
            found = self._state.nodes[node]
            found.host, found.port = host, port

        self._home.call(advertise)

    def cap_versions(self, node: int, api: str | int, lowest: int, highest: int) -> None:
        """Set the versions of an API that one broker offers, as in clusters with several releases.

        Args:
            node: node id.
            api: name or key of the request, as in "Produce".
            lowest: first version.
            highest: last version.

        Raises:
            ValueError: there is no broker with this id.
        """
        self._home.call(lambda: self.broker(node).advertised.update({api_key_of(api): (lowest, highest)}))

    def set_quota(self, client_id: str, producer_byte_rate: float | None) -> None:
        """Set the quota of a client (broker: 14).

        Args:
            client_id: `client_id` of the producer.
            producer_byte_rate: bytes per second, for each broker; None is no quota.
        """

        def change() -> None:
            if producer_byte_rate is None:
                self._producer_byte_rates.pop(client_id, None)
            else:
                self._producer_byte_rates[client_id] = producer_byte_rate

        self._home.call(change)

    def set_transaction_version(self, version: int) -> None:
        """Finalize another `transaction.version`, as UpdateFeatures does; open transactions go on (broker: 10.10).

        Args:
            version: 0, 1 or 2.
        """
        transaction_version_of(self._release, version)

        def finalize() -> None:
            self._transactions.coordinator.version = version
            others = {name: level for name, level in self._settings.features.items() if name != TRANSACTION_VERSION}
            features = self._settings.features = others | ({TRANSACTION_VERSION: version} if version else {})
            for broker in self._brokers.values():
                broker.features = features

        self._home.call(finalize)

    def close_connections(self, node: int | None = None, *, abort: bool = False) -> int:
        """Close the open connections of a broker, or of all brokers.

        Args:
            node: node id; None is every broker.
            abort: True resets the connections (RST), False ends them in order (FIN).

        Returns:
            The number of connections that were closed.

        Raises:
            ValueError: there is no broker with this id.
        """
        chosen = list(self._brokers.values()) if node is None else [self.broker(node)]
        return self._home.call(lambda: sum(broker.close_connections(abort=abort) for broker in chosen))

    def freeze_broker(self, node: int) -> None:
        """Make a broker silent, as SIGSTOP does: connections stay open, new ones are taken, nothing is read or written.

        It stays the leader of its partitions.

        Args:
            node: node id.

        Raises:
            ValueError: there is no broker with this id.
        """
        self._home.call(self.broker(node).freeze)

    def thaw_broker(self, node: int) -> None:
        """Let a frozen broker continue where it stopped, as SIGCONT does.

        Args:
            node: node id.

        Raises:
            ValueError: there is no broker with this id.
        """

        def thaw() -> None:
            self.broker(node).thaw()
            self._transactions.look_again()

        self._home.call(thaw)

    def refuse_connections(self, node: int) -> None:
        """Refuse new connections to a broker; open connections stay in use.

        Args:
            node: node id.

        Raises:
            ValueError: there is no broker with this id.
        """
        self._home.call(self.broker(node).refuse_connections)

    def allow_connections(self, node: int) -> None:
        """Accept connections again after `refuse_connections`.

        Args:
            node: node id.

        Raises:
            ValueError: there is no broker with this id.
        """
        self._home.call(self.broker(node).allow_connections)

    def _down(self, node: int, *, abort: bool, elect: bool, lose_uncopied: bool) -> None:
        broker = self.broker(node)
        self._transactions.node_stops(node)
        self._groups.node_stops(node)
        self._state.node_down(node, elect=elect, lose_uncopied=lose_uncopied)
        broker.stop(abort=abort)
        broker.reserve_port()

    # ------------------------------------------------------------------ by the clock

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
    for name, cap in caps.items():
        key = api_key_of(name)
        if cap is None:
            ranges.pop(key, None)
        else:
            ranges[key] = cap
    return ranges
