"""server.properties of a node, from the `ClusterSpec`. Pure: no file, no process.

Both backends use it: as a file for a JVM, as `KAFKA_...` variables for a container. The user's own `config` comes last
and wins.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from aiokprod.testing.kafka_cluster.spec import CONTROLLER, HOST, INTERNAL, ClusterSpec, NodeSpec, version_tuple

# Well above the 3 s for which a test freezes a broker, with up to a third of it since the last ping. A controller of Kafka 2.8
# that wakes with an expired session answers AlterIsr with UNKNOWN_SERVER_ERROR; the leader that asked throws in the callback
# ("Failed to enqueue ISR change state") and changes no ISR again until it is restarted.
ZOOKEEPER_SESSION_S: Final = 8.0


def common_properties(spec: ClusterSpec) -> dict[str, str]:
    """Return the properties of every node: replication, and small values where Kafka's defaults suit large machines."""
    replication, in_sync = str(spec.replication_factor), str(spec.min_insync_replicas)
    properties = {
        "default.replication.factor": replication,
        "min.insync.replicas": in_sync,
        "offsets.topic.replication.factor": replication,
        "offsets.topic.num.partitions": "8",
        "transaction.state.log.replication.factor": replication,
        "transaction.state.log.min.isr": in_sync,
        "transaction.state.log.num.partitions": "8",
        "group.initial.rebalance.delay.ms": "0",
        "auto.create.topics.enable": "false",  # a misspelt topic is an error in a test, not a new topic
        "unclean.leader.election.enable": "false",
        "num.network.threads": "2",
        "num.io.threads": "4",
        "log.cleaner.dedupe.buffer.size": "4194304",  # 128 MiB by default: half of our heap
        "log.segment.delete.delay.ms": "1000",
        "controlled.shutdown.retry.backoff.ms": "500",
    }
    if version_tuple(spec.version) >= (4, 0):
        properties["share.coordinator.state.topic.replication.factor"] = replication
        properties["share.coordinator.state.topic.min.isr"] = in_sync
        properties["share.coordinator.state.topic.num.partitions"] = "4"
    if spec.needs_zookeeper:
        # Until a killed broker's session ends, a new one cannot register under its id: it would end at once.
        properties["zookeeper.session.timeout.ms"] = str(int(ZOOKEEPER_SESSION_S * 1000))
    else:
        # A killed broker loses its leaders when its session ends; 9 s by default, and every fault test waits for it.
        properties["broker.session.timeout.ms"] = "6000"
        properties["broker.heartbeat.interval.ms"] = "1000"
    return properties


def process_properties(spec: ClusterSpec, node: NodeSpec, log_directory: str) -> dict[str, str]:
    """Return server.properties for a local JVM; every listener is on 127.0.0.1."""
    names = [INTERNAL, *spec.listeners]
    properties = common_properties(spec)
    properties |= {
        "log.dirs": log_directory,
        "advertised.listeners": ",".join(
            f"{name}://{HOST if name == INTERNAL else node.host}:{node.advertised[name]}" for name in names
        ),
        "inter.broker.listener.name": INTERNAL,
        "listener.security.protocol.map": protocol_map(spec),
    }
    if spec.needs_zookeeper:
        properties["broker.id"] = str(node.node_id)
        properties["zookeeper.connect"] = f"{HOST}:{spec.zookeeper_port}"
        bound = names
    else:
        properties["node.id"] = str(node.node_id)
        properties["process.roles"] = "broker,controller"
        properties["controller.listener.names"] = CONTROLLER
        properties["controller.quorum.voters"] = ",".join(
            f"{each.node_id}@{HOST}:{each.bound[CONTROLLER]}" for each in spec.nodes
        )
        bound = [CONTROLLER, *names]
    properties["listeners"] = ",".join(f"{name}://{HOST}:{node.bound[name]}" for name in bound)
    properties |= spec.security.properties(spec.listeners)
    properties |= spec.config
    return properties


def protocol_map(spec: ClusterSpec) -> str:
    """Return the security protocol of each listener; clients' listeners are named after theirs."""
    ours = [INTERNAL] if spec.needs_zookeeper else [CONTROLLER, INTERNAL]
    return ",".join([f"{name}:PLAINTEXT" for name in ours] + [f"{name}:{name}" for name in spec.listeners])


def to_text(properties: Mapping[str, str]) -> str:
    """Return the text of a Java properties file: ASCII; other characters, backslashes and line ends are escaped."""
    return "".join(f"{key}={_escaped(value)}\n" for key, value in properties.items())


def to_environment(properties: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of the `apache/kafka` image: `a.b_c-d` becomes `KAFKA_A_B__C___D`."""
    return {
        "KAFKA_" + key.replace("_", "__").replace("-", "___").replace(".", "_").upper(): value
        for key, value in properties.items()
    }


def _escaped(value: str) -> str:
    units = value.replace("\\", "\\\\").replace("\n", "\\n").encode("utf-16-be")
    codes = (units[at] << 8 | units[at + 1] for at in range(0, len(units), 2))  # Java escapes UTF-16 code units
    return "".join(chr(code) if code < 128 else f"\\u{code:04x}" for code in codes)
