"""`KafkaCluster`: a real Apache Kafka for tests, with brokers that can be killed, frozen and brought back.

    with KafkaCluster(brokers=3) as kafka:
        kafka.create_topic("orders", partitions=6)
        kafka.broker(2).kill()

One API over two backends: JVM processes of this machine (Java and Maven), or containers (a Docker engine). Synchronous:
a test calls it from its own thread, an async test through `asyncio.to_thread` where a call takes long.
"""

from __future__ import annotations

import atexit
import base64
import os
import shutil
import tempfile
import time
import uuid
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Final, Literal, Self

from aiokprod.testing.kafka_cluster.admin import Admin
from aiokprod.testing.kafka_cluster.backend import Backend, Broker, BrokerState
from aiokprod.testing.kafka_cluster.errors import KafkaClusterError
from aiokprod.testing.kafka_cluster.layout import nodes_of
from aiokprod.testing.kafka_cluster.ports import PortReservation, is_open
from aiokprod.testing.kafka_cluster.quorum import active_controller
from aiokprod.testing.kafka_cluster.security import ClusterSecurity, TlsFiles
from aiokprod.testing.kafka_cluster.spec import CLIENT_PROTOCOLS, CONTROLLER, HOST, INTERNAL, QUICK_START, ClusterSpec

if TYPE_CHECKING:
    from aiokprod.testing.proxy import FaultProxy

DEFAULT_VERSION: Final = "4.3.1"
IMAGE_VARIABLE: Final = "AIOKPROD_KAFKA_IMAGE"
READY_TIMEOUT_S: Final = 120.0
POLL_S: Final = 0.1

BackendName = Literal["auto", "processes", "containers"]


class KafkaCluster:
    """A cluster of real brokers on 127.0.0.1. `start`, or `with`, starts them.

    Args:
        brokers: number of brokers; their node ids are 1 and up. By default a topic has min(3, brokers) replicas, and
            `min.insync.replicas` is one less, at least 1.
        backend: "processes", "containers", or "auto": processes if Java and Kafka's jars (or Maven) are present.
        version: release of Kafka. Before 3.3 the cluster runs with ZooKeeper (processes only).
        image: container image with the interface of `apache/kafka`; None is `AIOKPROD_KAFKA_IMAGE` from the environment, or
            `apache/kafka:VERSION`.
        ports: ports of the first listener, one per broker; None is free ones.
        config: further properties of the brokers.
        heap: memory of each broker's JVM, as in "256m".
        java_options: further options of each broker's JVM (processes only). By default only its first compiler is used: a
            broker starts with a third less processor time, and its peak rate is lower. `()` to measure throughput.
        listeners: protocols for clients: PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL. The first one is the default.
        security: certificates and users of the listeners that need them; None makes them.
        proxied: True puts a `FaultProxy` before the first listener of every broker, a list before the listeners in it;
            brokers then advertise its address.
        advertised_host: host that the brokers advertise; only clients have to be able to resolve it.
        features: feature levels of the new cluster, as in `{"transaction.version": 0}` (processes only).
        class_path: folders of classes, or jars, of plugins of the brokers (processes only).

    Raises:
        ValueError: the arguments contradict each other.
    """

    def __init__(
        self,
        brokers: int = 3,
        *,
        backend: BackendName = "auto",
        version: str = DEFAULT_VERSION,
        image: str | None = None,
        ports: Sequence[int] | None = None,
        config: Mapping[str, str] | None = None,
        heap: str = "256m",
        java_options: Sequence[str] = QUICK_START,
        listeners: Sequence[str] = ("PLAINTEXT",),
        security: ClusterSecurity | None = None,
        proxied: bool | Sequence[str] = False,
        advertised_host: str = HOST,
        features: Mapping[str, int] | None = None,
        class_path: Sequence[Path] = (),
    ) -> None:
        if brokers < 1:
            raise ValueError(f"brokers={brokers}: a cluster has at least one")
        if unknown := [name for name in listeners if name not in CLIENT_PROTOCOLS]:
            raise ValueError(f"unknown listeners {unknown}: choose from {', '.join(CLIENT_PROTOCOLS)}")
        if not listeners or len(set(listeners)) != len(listeners):
            raise ValueError("listeners: at least one, each once")
        if isinstance(proxied, Sequence) and (unknown := [name for name in proxied if name not in listeners]):
            raise ValueError(f"proxied: {unknown} are no listeners of this cluster")
        if ports is not None and len(ports) != brokers:
            raise ValueError(f"{len(ports)} ports for {brokers} brokers")
        self.version = version
        self._count = brokers
        self._backend_name = backend
        self._image = image
        self._ports = tuple(ports) if ports is not None else None
        self._config = dict(config or {})
        self._heap = heap
        self._java_options = tuple(java_options)
        self._listeners = tuple(listeners)
        self._security = security or ClusterSecurity()
        self._proxied = tuple(listeners[:1]) if proxied is True else tuple(proxied or ())
        self._advertised_host = advertised_host
        self._features = dict(features or {})
        self._class_path = tuple(str(path) for path in class_path)
        self._spec: ClusterSpec | None = None
        self._backend: Backend | None = None
        self._reservation = PortReservation()
        self._certificates: Path | None = None
        self.proxies: dict[str, FaultProxy] = {}
        """Of the started cluster, by listener."""
        self._at_exit: Callable[[], None] | None = None
        self.admin = Admin(self._running_addresses)

    def __repr__(self) -> str:
        return (
            f"<KafkaCluster {self.version} {list(self._backend.brokers.values()) if self._backend else 'not started'}>"
        )

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Start every broker and wait until all of them are registered and answer (5 to 15 s).

        Raises:
            KafkaClusterError: something is missing on this machine, or a broker did not come up; says what and why.
        """
        if self._backend is not None:
            raise KafkaClusterError("the cluster is started already")
        self._backend = self._choose_backend()
        self._at_exit = _stop_weakly(weakref.ref(self))
        atexit.register(self._at_exit)
        try:
            self._spec = self._make_spec()
            self._start_proxies(self._spec)
            self._backend.start(self._spec, self._wait_registered)
            self.wait_ready()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """End every broker by force and remove all data. May be called twice."""
        if self._at_exit is not None:
            atexit.unregister(self._at_exit)
            self._at_exit = None
        self.admin.close()
        for proxy in self.proxies.values():
            proxy.close()
        self.proxies.clear()
        if self._backend is not None:
            self._backend.stop()
            self._backend = None
        if self._certificates is not None:
            shutil.rmtree(self._certificates, ignore_errors=True)
            self._certificates = None
        self._reservation.release()
        self._spec = None

    # Where it is.

    @property
    def bootstrap_servers(self) -> str:
        """For clients of the first listener: "127.0.0.1:port,..."."""
        return self.bootstrap_for(self._started_spec().listeners[0])

    def bootstrap_for(self, listener: str) -> str:
        """Return the servers for clients of one listener: "127.0.0.1:port,...".

        Args:
            listener: its protocol, for instance "SASL_SSL".
        """
        return ",".join(f"{node.host}:{node.advertised[listener]}" for node in self._started_spec().nodes)

    @property
    def cluster_id(self) -> str:
        """As the brokers report it."""
        self._started_spec()
        return self.admin.cluster_id()

    @property
    def security(self) -> ClusterSecurity:
        """Users and certificate files of the started cluster."""
        return self._started_spec().security

    @property
    def tls(self) -> TlsFiles:
        """The PEM files of a cluster with an SSL or SASL_SSL listener."""
        files = self._started_spec().security.tls
        if files is None:
            raise KafkaClusterError("this cluster has no SSL or SASL_SSL listener")
        return files

    @property
    def proxy(self) -> FaultProxy:
        """The fault proxy of `KafkaCluster(proxied=True)`: the one before the first listener that has one."""
        if not self.proxies:
            raise KafkaClusterError("no proxy: KafkaCluster(proxied=True), and start it")
        return next(iter(self.proxies.values()))

    def broker(self, node_id: int) -> Broker:
        """Return the handle of a broker.

        Args:
            node_id: node id, 1 and up.

        Raises:
            KeyError: there is no broker with this id.
            KafkaClusterError: the cluster is not started.
        """
        return self.brokers[node_id]

    @property
    def brokers(self) -> dict[int, Broker]:
        """Every broker's handle, by node id."""
        if self._backend is None:
            raise KafkaClusterError("the cluster is not started")
        return self._backend.brokers

    def active_controller(self) -> int:
        """Return the broker that leads the KRaft quorum: if it ends, the others elect (processes only).

        Raises:
            KafkaClusterError: none was elected in 30 s, or the cluster has none that this machine can reach.
        """
        spec = self._started_spec()
        if spec.needs_zookeeper or self._backend is None or self._backend.admin_listener != INTERNAL:
            raise KafkaClusterError('the controllers are in reach only with KRaft and backend="processes"')
        return active_controller(
            lambda: {
                node_id: (HOST, broker.node.bound[CONTROLLER])
                for node_id, broker in self.brokers.items()
                if broker.is_running
            }
        )

    # Waiting.

    def wait_ready(self, timeout_s: float = READY_TIMEOUT_S) -> None:
        """Wait until every broker that is not stopped or paused is registered with all of them.

        Args:
            timeout_s: seconds.

        Raises:
            KafkaClusterError: a broker ended, or the timeout passed; the message has the warnings and errors of its log.
        """
        expected = {node_id for node_id, broker in self.brokers.items() if broker.state is BrokerState.RUNNING}
        self._wait_seen(expected, timeout_s)

    def wait_all_in_sync(self, topic: str) -> None:
        """Wait until every partition of a topic has a leader and all its replicas in sync, at most a minute.

        Args:
            topic: topic name.

        Raises:
            KafkaClusterError: the cluster is not started, or did not do it within a minute; the message says why.
        """
        self.admin.wait_all_in_sync(topic)

    # Topics.

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        replication_factor: int | None = None,
        config: Mapping[str, str] | None = None,
    ) -> None:
        """Create a topic, and wait until every running broker knows its leaders.

        Args:
            name: topic name.
            partitions: number of partitions.
            replication_factor: number of replicas; None is one per broker, at most three.
            config: Kafka's topic options.

        Raises:
            KafkaClusterError: the cluster is not started, or did not do it within a minute; the message says why.
        """
        replicas = self._started_spec().replication_factor if replication_factor is None else replication_factor
        self.admin.create_topic(name, partitions, replicas, config or {})

    def delete_topic(self, name: str) -> None:
        """Delete a topic, and wait until no running broker knows it.

        Args:
            name: topic name.

        Raises:
            KafkaClusterError: the cluster is not started, or did not do it within a minute; the message says why.
        """
        self.admin.delete_topic(name)

    def alter_topic(self, name: str, config: Mapping[str, str | None]) -> None:
        """Set options of a topic.

        Args:
            name: topic name.
            config: Kafka's topic options; None restores a default.

        Raises:
            KafkaClusterError: the cluster is not started, or did not do it within a minute; the message says why.
        """
        self.admin.alter_topic(name, config)

    def add_partitions(self, name: str, partitions: int) -> None:
        """Add partitions to a topic.

        Args:
            name: topic name.
            partitions: number of partitions afterwards.

        Raises:
            KafkaClusterError: the cluster is not started, or did not do it within a minute; the message says why.
        """
        self.admin.add_partitions(name, partitions)

    def move_leader(self, topic: str, partition: int, to_node: int) -> None:
        """Make a broker the leader of a partition, and wait until every running broker knows it.

        Args:
            topic: topic name.
            partition: partition number.
            to_node: node id.

        Raises:
            KafkaClusterError: the cluster is not started, or did not do it within a minute; the message says why.
        """
        self.admin.move_leader(topic, partition, to_node)

    def leaders(self, topic: str) -> list[int]:
        """Return the leader of each partition, in order; -1 if there is none.

        Args:
            topic: topic name.

        Raises:
            KafkaClusterError: the topic does not exist, or the cluster is not started.
        """
        partitions = self.admin.topic(topic)
        if partitions is None:
            raise KafkaClusterError(f"no topic {topic!r}")
        return [each.leader for each in partitions]

    def end_offsets(self, topic: str) -> list[int]:
        """Return the offset after the last record, of each partition in order.

        Args:
            topic: topic name.

        Raises:
            KafkaClusterError: the cluster is not started, or did not do it within a minute; the message says why.
        """
        return self.admin.end_offsets(topic)

    # Inside.

    def _choose_backend(self) -> Backend:
        from aiokprod.testing.kafka_cluster.containers import ContainerBackend
        from aiokprod.testing.kafka_cluster.jars import can_run_processes
        from aiokprod.testing.kafka_cluster.processes import ProcessBackend

        wanted = self._backend_name
        if wanted == "auto":
            wanted = "processes" if can_run_processes(self.version) else "containers"
        if wanted == "processes":
            return ProcessBackend()
        return ContainerBackend(self._image or os.environ.get(IMAGE_VARIABLE) or f"apache/kafka:{self.version}")

    def _make_spec(self) -> ClusterSpec:
        spec = ClusterSpec(
            version=self.version,
            cluster_id=base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("="),
            nodes=nodes_of(
                self._count,
                self._listeners,
                proxied=self._proxied,
                ports=self._ports,
                host=self._advertised_host,
                reserve=self._reservation.take,
            ),
            listeners=self._listeners,
            config=self._config,
            heap=self._heap,
            java_options=self._java_options,
            security=self._made_security(),
            features=self._features,
            class_path=self._class_path,
        )
        return replace(spec, zookeeper_port=self._reservation.take()) if spec.needs_zookeeper else spec

    def _made_security(self) -> ClusterSecurity:
        if self._security.tls is not None or not any(name.endswith("SSL") for name in self._listeners):
            return self._security
        self._certificates = Path(tempfile.mkdtemp(prefix="aiokprod-tls-"))
        return replace(self._security, tls=TlsFiles.issue(self._certificates))

    def _start_proxies(self, spec: ClusterSpec) -> None:
        from aiokprod.testing.proxy import FaultProxy

        for name in self._proxied:
            self.proxies[name] = FaultProxy(
                {node.node_id: (HOST, node.bound[name]) for node in spec.nodes},
                ports={node.node_id: node.advertised[name] for node in spec.nodes},
                framed=not name.endswith("SSL"),  # inside TLS there are no frames to see
            )
            self.proxies[name].start()

    def _started_spec(self) -> ClusterSpec:
        if self._spec is None:
            raise KafkaClusterError("the cluster is not started")
        return self._spec

    def _running_addresses(self) -> dict[int, tuple[str, int]]:
        """Return the addresses for admin requests: past the proxy, of brokers that can answer."""
        if self._backend is None:
            return {}
        return {
            node_id: (HOST, broker.node.bound[self._backend.admin_listener])
            for node_id, broker in self._backend.brokers.items()
            if broker.state is BrokerState.RUNNING
        }

    def _wait_registered(self, node_id: int) -> None:
        self._wait_seen({node_id}, READY_TIMEOUT_S)

    def _wait_seen(self, expected: set[int], timeout_s: float) -> None:
        """Wait until each of these is known to every running broker, itself included."""
        deadline = time.monotonic() + timeout_s
        while True:
            for node_id in expected:
                broker = self.brokers[node_id]
                if broker.state is BrokerState.STOPPED:
                    raise KafkaClusterError(f"broker {node_id} ended while starting; its log:\n{broker.complaints()}")
            unaware = {
                node_id: missing
                for node_id in self._running_addresses()
                if (missing := expected - self.admin.brokers_seen_by(node_id))
            }
            # A broker opens its listeners one after another: that of the admin requests says nothing of the others.
            closed = {
                node_id: names
                for node_id in expected
                if (names := [n for n in self._listeners if not is_open(self.brokers[node_id].node.bound[n])])
            }
            if not unaware and not closed:
                return
            if time.monotonic() >= deadline:
                logs = "\n".join(self.brokers[node_id].complaints(15) for node_id in sorted(expected))
                told = "; ".join(
                    [f"broker {node} does not know {sorted(missing)}" for node, missing in unaware.items()]
                    + [f"broker {node} does not listen for {', '.join(names)}" for node, names in closed.items()]
                )
                raise KafkaClusterError(f"not ready after {timeout_s:.0f} s: {told}; their logs:\n{logs}")
            time.sleep(POLL_S)


def _stop_weakly(cluster: weakref.ref[KafkaCluster]) -> Callable[[], None]:
    """Return a function for interpreter exit that stops the cluster, and does not keep a forgotten one alive."""

    def stop() -> None:
        if (alive := cluster()) is not None:
            alive.stop()

    return stop
