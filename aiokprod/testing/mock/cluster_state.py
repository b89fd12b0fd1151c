"""The state of the whole cluster: nodes, topics, leaders, producer ids.

One `ClusterState` per `MockCluster`, shared by its brokers (there is no metadata propagation delay). Pure: no sockets,
no clock. Mistakes of a request are raised as `RefusalError` with the broker's code; handlers turn them into answers.

Invariants: a topic's id is never used again; `topics` and `topics_by_id` hold the same objects.
"""

from __future__ import annotations

import random
import re
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from aiokprod.testing.mock.log import TopicSettings
from aiokprod.testing.mock.partition import NO_LEADER, Partition
from aiokprod.wire.codes import ErrorCode

LARGEST_FIRST_PRODUCER_ID: Final = 1 << 40

_LEGAL_NAME: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}", re.ASCII)

MOST_NEW_PARTITIONS: Final = 10_000
"""The most that one request may add: without a bound a few bytes would fill the memory."""


class RefusalError(Exception):
    """The refusal of a request, or of one item of it, with a code and perhaps a text."""

    def __init__(self, code: int, message: str | None = None) -> None:
        super().__init__(code, message)
        self.code = code
        self.message = message


@dataclass(slots=True)
class Node:
    """One broker as metadata shows it; host and port are the advertised ones."""

    node_id: int
    host: str
    port: int
    rack: str | None = None
    is_up: bool = True


class Topic:
    """One incarnation of a topic."""

    __slots__ = ("name", "partitions", "settings", "topic_id")

    def __init__(self, name: str, topic_id: bytes, settings: TopicSettings) -> None:
        self.name = name
        self.topic_id = topic_id
        self.settings = settings
        self.partitions: list[Partition] = []

    def __repr__(self) -> str:
        return f"<Topic {self.name} id={self.topic_id.hex()} partitions={len(self.partitions)}>"

    def partition(self, index: int) -> Partition | None:
        """Return the partition, or None if there is none with this number."""
        return self.partitions[index] if 0 <= index < len(self.partitions) else None


def _nothing(topic: str) -> None:
    """Take the news where nothing is kept of a topic."""


class ClusterState:
    """Nodes, topics and counters."""

    def __init__(
        self,
        *,
        seed: int | None = None,
        default_partitions: int = 1,
        auto_create_topics: bool = True,
        validate_records: bool = True,
        expiration_ms: int = 86_400_000,
        topic_defaults: Mapping[str, str] | None = None,
        waits_for_min_insync: bool = True,
        cluster_id: str | None = None,
    ) -> None:
        self._random = random.Random(seed)
        self.cluster_id = f"mock-{self._random.randbytes(8).hex()}" if cluster_id is None else cluster_id
        self.nodes: dict[int, Node] = {}
        self.topics: dict[str, Topic] = {}
        self.topics_by_id: dict[bytes, Topic] = {}
        self.default_partitions = default_partitions
        self.auto_create_topics = auto_create_topics
        self.validate_records = validate_records
        self.expiration_ms = expiration_ms
        self.topic_defaults = dict(topic_defaults or {})
        self.waits_for_min_insync = waits_for_min_insync
        self.on_topic_deleted: Callable[[str], None] = _nothing
        # A cluster with a name of its own may be a restart, and producers of its earlier life go on: their ids must not
        # be given again, or two producers would share their sequences.
        self._next_producer_id = 1000 if cluster_id is None else self._random.randrange(1000, LARGEST_FIRST_PRODUCER_ID)

    def __repr__(self) -> str:
        return f"<ClusterState nodes={list(self.nodes)} topics={len(self.topics)}>"

    @property
    def controller_id(self) -> int:
        """The live node with the lowest id, -1 if none is up."""
        return min((node.node_id for node in self.nodes.values() if node.is_up), default=-1)

    @property
    def live_nodes(self) -> list[Node]:
        """Nodes that are up, by id."""
        return [node for _, node in sorted(self.nodes.items()) if node.is_up]

    def new_uuid(self) -> str:
        """Return a random UUID, as in the ids of a group's members."""
        return str(uuid.UUID(bytes=self._random.randbytes(16), version=4))

    def new_producer_id(self) -> int:
        """Return a producer id that was never given out before."""
        self._next_producer_id += 1
        return self._next_producer_id

    # ------------------------------------------------------------------ topics

    def create_topic(
        self,
        name: str,
        *,
        partitions: int = -1,
        replication_factor: int = -1,
        assignment: Mapping[int, list[int]] | None = None,
        options: Mapping[str, object] | None = None,
        validate_only: bool = False,
    ) -> Topic:
        """Create a topic. -1 means the default: `default_partitions`, and as many replicas as nodes, at most three."""
        self.check_name(name)
        if name in self.topics:
            raise RefusalError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
        twin = self._twin(name)
        if twin is not None:
            raise RefusalError(
                ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic '{name}' collides with existing topic: {twin}"
            )
        try:
            settings = TopicSettings.of(options or {}, self.topic_defaults)
            settings.check()
        except ValueError as bad:
            raise RefusalError(ErrorCode.INVALID_CONFIG, str(bad)) from bad
        replicas = self._assign(assignment, partitions, replication_factor)
        topic = Topic(name, self._new_topic_id(), settings)
        self._extend(topic, replicas)
        if not validate_only:
            self.topics[name] = topic
            self.topics_by_id[topic.topic_id] = topic
        return topic

    def _twin(self, name: str) -> str | None:
        """Return a topic whose name in the brokers' metrics is the same: a dot there is an underscore."""
        if "." not in name and "_" not in name:
            return None
        return next((other for other in self.topics if other.replace(".", "_") == name.replace(".", "_")), None)

    def delete_topic(self, topic: Topic) -> None:
        """Forget the topic, and wake the requests that wait for one of its partitions."""
        del self.topics[topic.name]
        del self.topics_by_id[topic.topic_id]
        for partition in topic.partitions:
            partition.elect(NO_LEADER)
        self.on_topic_deleted(topic.name)

    def add_partitions(self, topic: Topic, count: int) -> None:
        """Grow the topic to `count` partitions; 37 if that is not more than it has, 44 if it is far more (KRaft's bound)."""
        present = len(topic.partitions)
        if count <= present:
            raise RefusalError(
                ErrorCode.INVALID_PARTITIONS,
                f"The topic {topic.name} currently has {present} partition(s); {count} would not be an increase.",
            )
        if count - present > MOST_NEW_PARTITIONS:
            raise RefusalError(ErrorCode.POLICY_VIOLATION, "Excessively large number of partitions per request.")
        factor = len(topic.partitions[0].replicas)
        self._extend(topic, [self._replicas(index, factor) for index in range(present, count)])

    def topic(self, name: str) -> Topic:
        """Return the topic of this name; KeyError with the known names."""
        try:
            return self.topics[name]
        except KeyError:
            raise KeyError(f"no topic {name!r} among {sorted(self.topics)}") from None

    @staticmethod
    def check_name(name: str) -> None:
        """Raise INVALID_TOPIC_EXCEPTION (17) for a name that Kafka does not accept (broker: 8.6)."""
        if name in (".", "..") or not _LEGAL_NAME.fullmatch(name):
            raise RefusalError(ErrorCode.INVALID_TOPIC_EXCEPTION, "Topic name is invalid.")

    def _assign(self, assignment: Mapping[int, list[int]] | None, partitions: int, factor: int) -> list[list[int]]:
        if assignment:
            if sorted(assignment) != list(range(len(assignment))):
                raise RefusalError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "partitions are not numbered from 0")
            for nodes in assignment.values():
                if not nodes or len(set(nodes)) != len(nodes) or not set(nodes) <= set(self.nodes):
                    raise RefusalError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"{nodes} are not distinct nodes")
            return [list(assignment[index]) for index in range(len(assignment))]
        partitions = self.default_partitions if partitions == -1 else partitions
        if partitions > 100_000:
            raise RefusalError(ErrorCode.POLICY_VIOLATION, "Excessively large number of partitions per request.")
        if partitions <= 0:
            raise RefusalError(ErrorCode.INVALID_PARTITIONS, "Number of partitions must be larger than 0.")
        factor = min(3, len(self.nodes)) if factor == -1 else factor
        if not 0 < factor <= len(self.nodes):
            raise RefusalError(ErrorCode.INVALID_REPLICATION_FACTOR, f"{factor} replicas on {len(self.nodes)} brokers")
        return [self._replicas(index, factor) for index in range(partitions)]

    def _replicas(self, index: int, factor: int) -> list[int]:
        # Partition p begins at node p modulo nodes, live or not: a test can tell the leader beforehand.
        nodes = sorted(self.nodes)
        return [nodes[(index + step) % len(nodes)] for step in range(factor)]

    def _extend(self, topic: Topic, replicas: list[list[int]]) -> None:
        for nodes in replicas:
            index = len(topic.partitions)
            settings = _SettingsOf(topic)
            partition = Partition(
                topic.name,
                index,
                nodes,
                settings,
                validate_records=self.validate_records,
                waits_for_min_insync=self.waits_for_min_insync,
            )
            for node in nodes:
                if not self.nodes[node].is_up:
                    partition.node_down(node)
            topic.partitions.append(partition)

    def _new_topic_id(self) -> bytes:
        return self._random.randbytes(16)

    # ------------------------------------------------------------------ nodes

    def every_partition(self) -> list[Partition]:
        """Return all partitions of all topics."""
        return [partition for topic in self.topics.values() for partition in topic.partitions]

    def node_down(self, node_id: int, *, elect: bool = True, lose_uncopied: bool = False) -> None:
        """Take a node out; with `elect` its partitions get leaders among the live in-sync replicas."""
        if elect:
            self.nodes[node_id].is_up = False
        for partition in self.every_partition():
            partition.node_down(node_id, elect=elect, lose_uncopied=lose_uncopied)

    def node_up(self, node_id: int, now_ms: int) -> None:
        """Bring a node back."""
        self.nodes[node_id].is_up = True
        for partition in self.every_partition():
            partition.node_up(node_id, now_ms=now_ms, expiration_ms=self.expiration_ms)

    def expire_producers(self, now_ms: int) -> int:
        """Run the check of producer.id.expiration.ms (broker: 1.12, 1.13) and return how many entries expired."""
        return sum(
            replica.states.expire(now_ms, self.expiration_ms, partition.transactions.open)
            for partition in self.every_partition()
            for replica in partition.replicas.values()
        )


class _SettingsOf:
    """The settings of a topic as its partition reads them each time, so that a change acts at once."""

    __slots__ = ("_topic",)

    def __init__(self, topic: Topic) -> None:
        self._topic = topic

    def __call__(self) -> TopicSettings:
        return self._topic.settings
