"""The verbs of a test about topics, leaders and logs.

A base class of `MockCluster`. Every verb may be called from any thread and before the cluster is started; what it
changes is changed when it returns.
"""

from __future__ import annotations

from ..own_thread import LoopHome
from .cluster_state import ClusterState, Topic
from .log import StoredBatch
from .partition import NO_LEADER, Partition
from .stored_records import StoredRecord, stored_records


class TopicVerbs:
    """What can be done to topics, and what can be read of them."""

    _home: LoopHome
    _state: ClusterState

    def create_topic(
        self, name: str, partitions: int = 1, replication_factor: int | None = None, **config: object
    ) -> bytes:
        """Create a topic; config by Kafka's names in snake case (`max_message_bytes=1000`, `cleanup_policy="compact"`).

        Partition p is led by the p-th broker, modulo brokers. Raises RefusalError with the broker's code; returns the
        topic id.
        """
        factor = -1 if replication_factor is None else replication_factor
        create = self._state.create_topic
        topic = self._home.call(lambda: create(name, partitions=partitions, replication_factor=factor, options=config))
        return topic.topic_id

    def delete_topic(self, name: str) -> None:
        """Delete it, with its logs."""
        self._home.call(lambda: self._state.delete_topic(self._state.topic(name)))

    def recreate_topic(self, name: str, partitions: int | None = None) -> bytes:
        """Delete and create it anew in one step: same settings, another topic id, empty logs; returns the new id."""

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
        """Grow the topic to `count` partitions."""
        self._home.call(lambda: self._state.add_partitions(self._state.topic(name), count))

    def alter_topic(self, name: str, **config: object) -> None:
        """Set topic options; they act on the next batch."""

        def alter() -> None:
            topic = self._state.topic(name)
            topic.settings = topic.settings.altered(config)
            topic.settings.check()
            for partition in topic.partitions:
                partition.replicate()

        self._home.call(alter)

    def topic_id(self, name: str) -> bytes:
        """Its id, 16 bytes."""
        return self._home.call(lambda: self._state.topic(name)).topic_id

    # ---- leaders and replicas

    def move_leader(self, topic: str, partition: int, node: int | None, *, lose_uncopied: bool = False) -> None:
        """Make `node` the leader (None: nobody), in a new leader epoch; waiting produces get 6 with their base offset.

        Args:
            lose_uncopied: the log is cut to what the new leader had copied (see `freeze_replicas`).
        """
        found = self._partition(topic, partition)
        if node is not None and node not in found.replicas:
            raise ValueError(f"{node} is no replica of {found!r}")
        self._home.call(lambda: found.elect(NO_LEADER if node is None else node, lose_uncopied=lose_uncopied))

    def leader(self, topic: str, partition: int = 0) -> int | None:
        """Who leads, or None."""
        leader = self._partition(topic, partition).leader
        return None if leader == NO_LEADER else leader

    def set_isr(self, topic: str, partition: int, nodes: list[int]) -> None:
        """Set the in-sync replicas; below min.insync.replicas acks=all gets 19, and a waiting produce gets 7."""
        found = self._partition(topic, partition)
        self._home.call(lambda: found.set_isr(nodes))

    def freeze_replicas(self, topic: str, partition: int, nodes: list[int] | None = None) -> None:
        """Followers (all by default) stop copying: the high watermark stands still (broker: 6.1)."""
        found = self._partition(topic, partition)
        chosen = [node for node in found.replicas if node != found.leader] if nodes is None else nodes
        self._home.call(lambda: found.freeze(chosen, frozen=True))

    def thaw_replicas(self, topic: str, partition: int) -> None:
        """All replicas copy again."""
        found = self._partition(topic, partition)
        self._home.call(lambda: found.freeze(list(found.replicas), frozen=False))

    def delete_records(self, topic: str, partition: int, before_offset: int) -> None:
        """Move the log start; producers are remembered (broker: 1.8)."""
        found = self._partition(topic, partition)
        self._home.call(lambda: found.log.delete_before(before_offset))

    def forget_producers(self, topic: str, partition: int = 0, producer_id: int | None = None) -> None:
        """Make every replica forget one producer or all, as if its state had expired (broker: 1.6)."""
        found = self._partition(topic, partition)

        def forget() -> None:
            for replica in found.replicas.values():
                replica.states.forget(producer_id)

        self._home.call(forget)

    # ---- what is there

    @property
    def topics(self) -> dict[str, int]:
        """The number of partitions of each topic, by name, in the order they were created."""
        return self._home.call(lambda: {name: len(topic.partitions) for name, topic in self._state.topics.items()})

    def records(self, topic: str, partition: int | None = None, *, committed: bool = False) -> list[StoredRecord]:
        """Decoded records in log order, partition after partition; with `committed` what read_committed readers see."""

        def collect() -> list[tuple[int, list[StoredBatch]]]:
            found = self._state.topic(topic)
            chosen = found.partitions if partition is None else [self._partition(topic, partition)]
            return [(one.index, [b for b in one.log.batches if not committed or one.is_committed(b)]) for one in chosen]

        return [
            record for index, batches in self._home.call(collect) for record in stored_records(topic, index, batches)
        ]

    def log(self, topic: str, partition: int = 0) -> tuple[StoredBatch, ...]:
        """The batches of a partition's log; `data` of each is what a reader fetches."""
        found = self._partition(topic, partition)
        return self._home.call(lambda: found.log.batches)

    def partition(self, topic: str, partition: int = 0) -> Partition:
        """The live partition: leader, epoch, isr, high watermark, producer states. Look, and change it by the verbs."""
        return self._partition(topic, partition)

    def _partition(self, topic: str, partition: int) -> Partition:
        found = self._home.call(lambda: self._state.topic(topic).partition(partition))
        if found is None:
            raise KeyError(f"topic {topic!r} has no partition {partition}")
        return found
