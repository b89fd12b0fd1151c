"""The verbs of a test about brokers: stopped, killed, frozen, added, and what they advertise.

A base class of `MockCluster`. Every verb may be called from any thread; what it changes is changed when it returns.
"""

from __future__ import annotations

from collections.abc import Callable

from aiokprod.testing.faults.apis import api_key_of
from aiokprod.testing.mock.broker import MockBroker
from aiokprod.testing.mock.broker_core import BrokerSettings
from aiokprod.testing.mock.cluster_state import ClusterState, Node
from aiokprod.testing.mock.groups.cluster_groups import ClusterGroups
from aiokprod.testing.mock.kafka_versions import TRANSACTION_VERSION, KafkaRelease, transaction_version_of
from aiokprod.testing.mock.transactions.cluster_transactions import ClusterTransactions
from aiokprod.testing.own_thread import LoopHome


class BrokerVerbs:
    """Changes of brokers and of their connections."""

    _home: LoopHome
    _state: ClusterState
    _transactions: ClusterTransactions
    _groups: ClusterGroups
    _settings: BrokerSettings
    _release: KafkaRelease
    _brokers: dict[int, MockBroker]
    _producer_byte_rates: dict[str, float]
    _now_ms: Callable[[], int]

    @property
    def bootstrap_servers(self) -> str:
        """`host:port,host:port`, every broker, up or down."""
        return ",".join(f"{broker.host}:{broker.port}" for broker in self._brokers.values())

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
                broker.features_epoch += 1

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

    def _open_broker(self, node_id: int, port: int, rack: str | None) -> None:
        broker = MockBroker(node_id, self._settings, port)
        self._brokers[node_id] = broker
        self._state.nodes[node_id] = Node(node_id, broker.host, broker.port, rack)
        broker.start()
