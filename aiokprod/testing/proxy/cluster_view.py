"""`ClusterView`: a proxy's view of the cluster behind it, from the Metadata answers that pass.

One per FaultProxy. Produce v13 and Fetch v13 name topics by id; faults name them as people do.
"""

from __future__ import annotations

from dataclasses import dataclass

from aiokprod.wire.messages.metadata import MetadataResponse
from aiokprod.wire.reader import ZERO_UUID


@dataclass(frozen=True, slots=True)
class Leader:
    """The leader of a partition."""

    node_id: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Node:
    """A broker as Metadata names it."""

    node_id: int
    host: str
    port: int
    rack: str | None


class ClusterView:
    """Names by topic id, leaders by partition, brokers by id."""

    def __init__(self) -> None:
        self._names: dict[bytes, str] = {}
        self._leaders: dict[tuple[str, int], Leader] = {}
        self._nodes: dict[int, Node] = {}

    def learn(self, answer: MetadataResponse) -> None:
        """Take in what this answer says."""
        for broker in answer.brokers:
            self._nodes[broker.node_id] = Node(broker.node_id, broker.host, broker.port, broker.rack)
        for topic in answer.topics:
            if topic.name is None or topic.error_code != 0:
                continue
            if topic.topic_id != ZERO_UUID:
                self._names[topic.topic_id] = topic.name
            for partition in topic.partitions:
                self._leaders[topic.name, partition.partition_index] = Leader(
                    partition.leader_id, partition.leader_epoch
                )

    def name_of(self, name: str | None, topic_id: bytes) -> str:
        """Return the topic's name: that in the request, or by its id; empty if no Metadata answer has named it yet."""
        return name or self._names.get(topic_id, "")

    def leader(self, topic: str, partition: int) -> Leader | None:
        """Return the leader in the last Metadata answer."""
        return self._leaders.get((topic, partition))

    def node(self, node_id: int) -> Node | None:
        """Return the address of a node."""
        return self._nodes.get(node_id)
