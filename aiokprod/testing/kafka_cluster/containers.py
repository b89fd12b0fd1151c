"""`ContainerBackend`: each node a container of an Apache Kafka image, all on one Docker network.

testcontainers starts and removes them (its reaper too, unless `TESTCONTAINERS_RYUK_DISABLED` says no). Works with any
image that keeps the contract of `apache/kafka`: `KAFKA_FOO_BAR` sets `foo.bar`, `CLUSTER_ID` formats the storage.

Invariants: every port is published on 127.0.0.1 only; a host port stays the same over the container's lives.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from aiokprod.testing.kafka_cluster.backend import Broker, BrokerState
from aiokprod.testing.kafka_cluster.errors import KafkaClusterError
from aiokprod.testing.kafka_cluster.properties import common_properties, protocol_map, to_environment
from aiokprod.testing.kafka_cluster.spec import CONTROLLER, HOST, INTERNAL, ClusterSpec, NodeSpec

if TYPE_CHECKING:
    from docker.models.containers import Container
    from testcontainers.core.container import DockerContainer
    from testcontainers.core.network import Network

_PORTS: Final = {"PLAINTEXT": 9092, INTERNAL: 19092, CONTROLLER: 29093}
_STATES: Final = {"running": BrokerState.RUNNING, "paused": BrokerState.PAUSED}


class ContainerBroker(Broker):
    """A broker in a container of its own."""

    def __init__(
        self, node: NodeSpec, listener: str, wait_registered: Callable[[int], None], made: DockerContainer
    ) -> None:
        super().__init__(node, listener, wait_registered)
        self._made = made
        self._is_created = False

    @property
    def container(self) -> Container:
        """The Docker API's own object."""
        return self._made.get_wrapped_container()

    @property
    def state(self) -> BrokerState:
        if not self._is_created:
            return BrokerState.STOPPED
        container = self.container
        container.reload()
        return _STATES.get(container.status, BrokerState.STOPPED)

    def kill(self) -> None:
        if self.state is not BrokerState.STOPPED:
            self.container.kill()
            self.container.wait()

    def stop(self, timeout_s: float = 60.0) -> None:
        state = self.state
        if state is BrokerState.PAUSED:
            self.container.unpause()
        if state is not BrokerState.STOPPED:
            self.container.stop(timeout=int(timeout_s))

    def pause(self) -> None:
        if self._alive() is BrokerState.RUNNING:
            self.container.pause()

    def resume(self) -> None:
        if self._alive() is BrokerState.PAUSED:
            self.container.unpause()

    def log_tail(self, lines: int = 40) -> str:
        return self.container.logs(tail=lines).decode(errors="replace") if self._is_created else ""

    def remove(self) -> None:
        """End it by force and remove it with its data."""
        if self._is_created:
            self._made.stop()
            self._is_created = False

    def _launch(self) -> None:
        if self._is_created:
            self.container.start()
        else:
            self._made.start()
            self._is_created = True

    def _alive(self) -> BrokerState:
        if (state := self.state) is BrokerState.STOPPED:
            raise KafkaClusterError(f"broker {self.node_id} is not running")
        return state


class ContainerBackend:
    """All containers of one cluster, and their network."""

    def __init__(self, image: str) -> None:
        self.admin_listener = "PLAINTEXT"  # of INTERNAL the host sees nothing
        self.image = image
        self.brokers: dict[int, Broker] = {}
        self._network: Network | None = None

    def start(self, spec: ClusterSpec, wait_registered: Callable[[int], None]) -> None:
        if spec.listeners != ("PLAINTEXT",):
            raise KafkaClusterError('TLS and SASL listeners need KafkaCluster(backend="processes")')
        if spec.features:
            raise KafkaClusterError('features are set with KafkaCluster(backend="processes")')
        if spec.class_path:
            raise KafkaClusterError('a class path is given with KafkaCluster(backend="processes")')
        if spec.needs_zookeeper:
            raise KafkaClusterError(f'Kafka {spec.version} needs ZooKeeper: use KafkaCluster(backend="processes")')
        try:
            from docker.errors import DockerException
            from testcontainers.core.container import DockerContainer
            from testcontainers.core.network import Network
        except ImportError as missing:
            raise KafkaClusterError('containers need: pip install "aiokprod[testing]"') from missing
        try:
            self._network = Network().create()
            for node in spec.nodes:
                made = DockerContainer(self.image).with_network(self._network).with_network_aliases(_alias(node))
                made.with_envs(**_environment(spec, node))
                # The tuple is Docker's way to say which address; testcontainers only types the port.
                made.ports[f"{_PORTS['PLAINTEXT']}/tcp"] = (HOST, node.bound["PLAINTEXT"])  # type: ignore[assignment]
                broker = ContainerBroker(node, spec.listeners[0], wait_registered, made)
                self.brokers[node.node_id] = broker
                broker.start(wait=False)
        except DockerException as cause:
            raise KafkaClusterError(
                f"no container of {self.image} could be started: is a Docker engine running, and can it get the image?"
                f" ({cause})"
            ) from cause

    def stop(self) -> None:
        for broker in self.brokers.values():
            assert isinstance(broker, ContainerBroker)
            broker.remove()
        if self._network is not None:
            self._network.remove()
        self.brokers, self._network = {}, None


def _alias(node: NodeSpec) -> str:
    return f"kafka-{node.node_id}"


def _environment(spec: ClusterSpec, node: NodeSpec) -> dict[str, str]:
    """Return the container's variables: node and cluster identity, one published listener, two within the network."""
    properties = common_properties(spec) | {
        "node.id": str(node.node_id),
        "process.roles": "broker,controller",
        "controller.listener.names": CONTROLLER,
        "controller.quorum.voters": ",".join(f"{n.node_id}@{_alias(n)}:{_PORTS[CONTROLLER]}" for n in spec.nodes),
        "listeners": ",".join(f"{name}://:{port}" for name, port in _PORTS.items()),
        "advertised.listeners": (
            f"PLAINTEXT://{node.host}:{node.advertised['PLAINTEXT']},{INTERNAL}://{_alias(node)}:{_PORTS[INTERNAL]}"
        ),
        "inter.broker.listener.name": INTERNAL,
        "listener.security.protocol.map": protocol_map(spec),
    }
    properties |= spec.config
    return to_environment(properties) | {
        "CLUSTER_ID": spec.cluster_id,
        "KAFKA_HEAP_OPTS": f"-Xms{spec.heap} -Xmx{spec.heap}",
    }
