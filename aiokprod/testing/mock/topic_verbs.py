"""The verbs of a test about topics, leaders and logs.

A base class of `MockCluster`. Every verb may be called from any thread and before the cluster is started; what it
changes is changed when it returns.
"""

from __future__ import annotations

from collections.abc import Mapping

from aiokprod.testing.mock.cluster_state import ClusterState, Topic
from aiokprod.testing.mock.log import StoredBatch
from aiokprod.testing.mock.partition import NO_LEADER, Partition
from aiokprod.testing.mock.stored_records import StoredRecord, stored_records
from aiokprod.testing.own_thread import LoopHome


class TopicVerbs:
    """Changes of topics, and questions about them."""

    _home: LoopHome
    _state: ClusterState

    def create_topic(
        self, name: str, partitions: int = 1, replication_factor: int | None = None, **config: object
    ) -> bytes:
        """Create a topic. Partition p is led by broker p modulo the number of brokers.

        Args:
            name: topic name.
            partitions: number of partitions.
            replication_factor: number of replicas; None is one per broker, at most three.
            **config: Kafka's topic options in snake case (`max_message_bytes=1000`, `cleanup_policy="compact"`).

        Returns:
            The topic id, 16 bytes.

        Raises:
            RefusalError: a broker would refuse this; `code` is its error code.
            TypeError: an option is a mapping, as of several options.
        """
        for given in config.values():
            if isinstance(given, Mapping):
                raise TypeError('each option of a topic is a keyword: create_topic("orders", max_message_bytes=1000)')
        factor = -1 if replication_factor is None else replication_factor
        create = self._state.create_topic
        topic = self._home.call(lambda: create(name, partitions=partitions, replication_factor=factor, options=config))
        return topic.topic_id

    def delete_topic(self, name: str) -> None:
        """Delete a topic and its logs.

        Args:
            name: topic name.

        Raises:
            KeyError: the topic does not exist.
        """
        self._home.call(lambda: self._state.delete_topic(self._state.topic(name)))

    def recreate_topic(self, name: str, partitions: int | None = None) -> bytes:
        """Delete a topic and create it again in one step: with the same options, another topic id and empty logs.

        Args:
            name: topic name.
            partitions: number of partitions; None is the same number.

        Returns:
            The new topic id, 16 bytes.

        Raises:
            KeyError: the topic does not exist.
        """

        def recreate() -> Topic:
            old = self._state.topic(name)
            self._state.delete_topic(old)
            return self._state.create_topic(
                name,
                partitions=partitions or len(old.partitions),
                replication_factor=len(old.partitions[0].replicas),
                options=old.settings.options,
            )

        return self._home.call(recreate).topic_id

    def add_partitions(self, name: str, count: int) -> None:
        """Add partitions to a topic.

        Args:
            name: topic name.
            count: number of partitions afterwards.

        Raises:
            KeyError: the topic does not exist.
            RefusalError: INVALID_PARTITIONS (37), as the topic has as many already.
        """
        self._home.call(lambda: self._state.add_partitions(self._state.topic(name), count))

    def alter_topic(self, name: str, **config: object) -> None:
        """Set options of a topic; they apply from the next batch.

        Args:
            name: topic name.
            **config: Kafka's topic options in snake case.

        Raises:
            KeyError: the topic does not exist.
        """

        def alter() -> None:
            topic = self._state.topic(name)
            topic.settings = topic.settings.altered(config)
            topic.settings.check()
            for partition in topic.partitions:
                partition.replicate()

        self._home.call(alter)

    def topic_id(self, name: str) -> bytes:
        """Return the id of a topic, 16 bytes.

        Args:
            name: topic name.

        Raises:
            KeyError: the topic does not exist.
        """
        return self._home.call(lambda: self._state.topic(name)).topic_id

    # ------------------------------------------------------------------ leaders and replicas

    def move_leader(self, topic: str, partition: int, node: int | None, *, lose_uncopied: bool = False) -> None:
        """Make a broker the leader of a partition, in a new leader epoch.

        Produce requests that wait for replicas get NOT_LEADER_OR_FOLLOWER (6) with their base offset.

        Args:
            topic: topic name.
            partition: partition number.
            node: node id of a replica; None leaves the partition without a leader.
            lose_uncopied: True cuts the log to the records that the new leader has copied (see `freeze_replicas`).

        Raises:
            ValueError: the broker has no replica of the partition.
            KeyError: the topic or the partition does not exist.
        """
        found = self._partition(topic, partition)
        if node is not None and node not in found.replicas:
            raise ValueError(f"{node} is no replica of {found!r}")
        self._home.call(lambda: found.elect(NO_LEADER if node is None else node, lose_uncopied=lose_uncopied))

    def leader(self, topic: str, partition: int = 0) -> int | None:
        """Return the node id of the leader; None if there is none.

        Args:
            topic: topic name.
            partition: partition number.

        Raises:
            KeyError: the topic or the partition does not exist.
        """
        leader = self._partition(topic, partition).leader
        return None if leader == NO_LEADER else leader

    def set_isr(self, topic: str, partition: int, nodes: list[int]) -> None:
        """Set the in-sync replicas of a partition.

        Below `min.insync.replicas`, acks=all gets NOT_ENOUGH_REPLICAS (19), and a waiting request gets REQUEST_TIMED_OUT (7).

        Args:
            topic: topic name.
            partition: partition number.
            nodes: node ids.

        Raises:
            ValueError: the list is empty, or one of the brokers has no replica.
            KeyError: the topic or the partition does not exist.
        """
        found = self._partition(topic, partition)
        self._home.call(lambda: found.set_isr(nodes))

    def freeze_replicas(self, topic: str, partition: int, nodes: list[int] | None = None) -> None:
        """Stop the copying to followers, so that the high watermark does not move (broker: 6.1).

        Args:
            topic: topic name.
            partition: partition number.
            nodes: node ids; None is all followers.

        Raises:
            KeyError: the topic or the partition does not exist.
        """
        found = self._partition(topic, partition)
        chosen = [node for node in found.replicas if node != found.leader] if nodes is None else nodes
        self._home.call(lambda: found.freeze(chosen, frozen=True))

    def thaw_replicas(self, topic: str, partition: int) -> None:
        """Let all replicas of a partition copy again.

        Args:
            topic: topic name.
            partition: partition number.

        Raises:
            KeyError: the topic or the partition does not exist.
        """
        found = self._partition(topic, partition)
        self._home.call(lambda: found.freeze(list(found.replicas), frozen=False))

    def delete_records(self, topic: str, partition: int, before_offset: int) -> None:
        """Move the start of a partition's log; the state of producers is kept (broker: 1.8).

        Args:
            topic: topic name.
            partition: partition number.
            before_offset: offset of the first record that stays.

        Raises:
            KeyError: the topic or the partition does not exist.
        """
        found = self._partition(topic, partition)
        self._home.call(lambda: found.log.delete_before(before_offset))

    def forget_producers(self, topic: str, partition: int = 0, producer_id: int | None = None) -> None:
        """Remove the state of producers from all replicas, as if it had expired (broker: 1.6).

        Args:
            topic: topic name.
            partition: partition number.
            producer_id: one producer; None is all of them.

        Raises:
            KeyError: the topic or the partition does not exist.
        """
        found = self._partition(topic, partition)

        def forget() -> None:
            for replica in found.replicas.values():
                replica.states.forget(producer_id)

        self._home.call(forget)

    # ------------------------------------------------------------------ what is there

    @property
    def topics(self) -> dict[str, int]:
        """The number of partitions of each topic, by name, in the order they were created."""
        return self._home.call(lambda: {name: len(topic.partitions) for name, topic in self._state.topics.items()})

    def records(self, topic: str, partition: int | None = None, *, committed: bool = False) -> list[StoredRecord]:
        """Return the decoded records of a topic.

        Args:
            topic: topic name.
            partition: partition number; None is all, one after another.
            committed: True leaves out what `read_committed` readers do not see.

        Returns:
            The records, in the order of the log.

        Raises:
            KeyError: the topic or the partition does not exist.
        """

        def collect() -> list[tuple[int, list[StoredBatch]]]:
            found = self._state.topic(topic)
            chosen = found.partitions if partition is None else [self._partition(topic, partition)]
            return [(one.index, [b for b in one.log.batches if not committed or one.is_committed(b)]) for one in chosen]

        return [
            record for index, batches in self._home.call(collect) for record in stored_records(topic, index, batches)
        ]

    def log(self, topic: str, partition: int = 0) -> tuple[StoredBatch, ...]:
        """Return the batches of a partition's log; `data` of each is what a reader fetches.

        Args:
            topic: topic name.
            partition: partition number.

        Raises:
            KeyError: the topic or the partition does not exist.
        """
        found = self._partition(topic, partition)
        return self._home.call(lambda: found.log.batches)

    def partition(self, topic: str, partition: int = 0) -> Partition:
        """Return the live state of a partition: leader, epoch, in-sync replicas, high watermark, producer states.

        It is for reading; change it by the methods of the cluster.

        Args:
            topic: topic name.
            partition: partition number.

        Raises:
            KeyError: the topic or the partition does not exist.
        """
        return self._partition(topic, partition)

    def _partition(self, topic: str, partition: int) -> Partition:
        found = self._home.call(lambda: self._state.topic(topic).partition(partition))
        if found is None:
            raise KeyError(f"topic {topic!r} has no partition {partition}")
        return found
