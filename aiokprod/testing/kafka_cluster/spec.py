"""`ClusterSpec` and `NodeSpec`: what a cluster is asked to be, settled before anything starts. Pure values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from aiokprod.testing.kafka_cluster.security import ClusterSecurity

HOST: Final = "127.0.0.1"
CONTROLLER: Final = "CONTROLLER"
INTERNAL: Final = "INTERNAL"  # between brokers, and for our admin requests: never proxied, always plaintext
CLIENT_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSpec:
    """One node: its id and its ports, by listener name.

    `bound` is where the broker listens, `advertised` what it tells clients (a proxy's port, where there is a proxy), and
    `host` the name or address that it tells them.
    """

    node_id: int
    bound: Mapping[str, int]
    advertised: Mapping[str, int]
    host: str = HOST


QUICK_START: Final = ("-XX:TieredStopAtLevel=1",)
"""The JVM's first compiler alone: most brokers of tests end before the second one pays."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSpec:
    """A whole cluster. `listeners` are those of clients, the first one being the default."""

    version: str
    cluster_id: str
    nodes: tuple[NodeSpec, ...]
    listeners: tuple[str, ...] = ("PLAINTEXT",)
    config: Mapping[str, str] = field(default_factory=dict[str, str])
    heap: str = "256m"
    java_options: tuple[str, ...] = QUICK_START
    security: ClusterSecurity = field(default_factory=ClusterSecurity)
    zookeeper_port: int | None = None
    features: Mapping[str, int] = field(default_factory=dict[str, int])
    class_path: tuple[str, ...] = ()

    @property
    def replication_factor(self) -> int:
        """The replication factor of internal topics, and of a test's topics unless the test sets another."""
        return min(3, len(self.nodes))

    @property
    def min_insync_replicas(self) -> int:
        """Two of three, so that one broker may be down."""
        return max(1, self.replication_factor - 1)

    @property
    def needs_zookeeper(self) -> bool:
        """Kafka before 3.3 has no KRaft fit for use."""
        return version_tuple(self.version) < (3, 3)


def version_tuple(version: str) -> tuple[int, int]:
    """Return (major, minor) of a version such as "4.3.1"."""
    major, minor = version.split(".")[:2]
    return int(major), int(minor)
