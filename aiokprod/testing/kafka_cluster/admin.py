"""`Admin`: topics, leaders and settings of a test's cluster, over plain sockets; no Java process per call.

One per `KafkaCluster`. Each call asks a broker that runs (the controller, where one must), tries again on what passes
by itself (an election, a lost connection, a controller that moved) and gives up at its deadline with the last cause.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Final

from aiokprod.testing.kafka_cluster.asking import Asking, done
from aiokprod.testing.kafka_cluster.errors import KafkaAdminError, KafkaClusterError
from aiokprod.wire.codes import ErrorCode
from aiokprod.wire.messages import alter_client_quotas as client_quotas
from aiokprod.wire.messages import alter_partition_reassignments as reassignments
from aiokprod.wire.messages import create_partitions, create_topics, delete_topics, incremental_alter_configs
from aiokprod.wire.messages import elect_leaders as elections
from aiokprod.wire.messages import list_offsets as offsets
from aiokprod.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse

TOPIC_RESOURCE: Final = 2
BROKER_RESOURCE: Final = 4
CLIENT_METRICS_RESOURCE: Final = 16
_LATEST: Final = -1
_SET, _DELETE = 0, 1


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionState:
    """A partition as a broker sees it; `leader` is -1 while there is none."""

    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]


class _DeleteTopicsByName(delete_topics.DeleteTopicsRequest):
    """DeleteTopics of version 5: version 6 renamed the field, and every broker reads version 5."""

    MAX_VERSION: ClassVar[int] = 5


class Admin(Asking):
    """Blocking admin requests."""

    # What there is.

    def cluster_id(self) -> str:
        """Return the cluster's id, as any running broker tells it."""
        return self._anywhere(MetadataRequest(topics=[]), MetadataResponse).cluster_id or ""

    def brokers_seen_by(self, node_id: int) -> set[int]:
        """Return the registered brokers as this one knows them; empty if it does not answer."""
        with contextlib.suppress(OSError, KafkaClusterError):
            answer = self._request(MetadataRequest(topics=[]), MetadataResponse, node_id)
            return {broker.node_id for broker in answer.brokers}
        return set()

    def topic(self, name: str, *, seen_by: int | None = None) -> list[PartitionState] | None:
        """Return the topic's partitions in order, as one broker sees them; None if it does not know the topic."""
        request = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=False)
        answer = (
            self._request(request, MetadataResponse, seen_by)
            if seen_by is not None
            else self._anywhere(request, MetadataResponse)
        )
        (topic,) = answer.topics
        if topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return None
        if topic.error_code not in (0, ErrorCode.LEADER_NOT_AVAILABLE):
            raise KafkaAdminError(f"Metadata of {name}", topic.error_code)
        return [
            PartitionState(
                leader=each.leader_id,
                leader_epoch=each.leader_epoch,
                replicas=tuple(each.replica_nodes),
                in_sync=tuple(each.isr_nodes),
            )
            for each in sorted(topic.partitions, key=lambda partition: partition.partition_index)
        ]

    def end_offsets(self, topic: str) -> list[int]:
        """Return the offset after the last record, per partition, as each leader tells it."""
        return [self._end_offset(topic, index) for index in range(len(self._known(topic)))]

    # What is changed.

    def create_topic(self, name: str, partitions: int, replication_factor: int, config: Mapping[str, str]) -> None:
        """Create it and wait until every running broker knows a leader for each partition."""
        topic = create_topics.CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=replication_factor,
            configs=[create_topics.CreatableTopicConfig(name=key, value=value) for key, value in config.items()],
        )
        request = create_topics.CreateTopicsRequest(topics=[topic], timeout_ms=10_000)

        def attempt(tries: int) -> bool:
            (result,) = self._controller(request, create_topics.CreateTopicsResponse).topics
            if tries and result.error_code == ErrorCode.TOPIC_ALREADY_EXISTS:
                return True  # the attempt whose answer was lost
            if result.error_code == ErrorCode.UNKNOWN_SERVER_ERROR:
                return False  # what a controller says that has just lost its session with ZooKeeper
            if result.error_code == ErrorCode.INVALID_REPLICATION_FACTOR and replication_factor <= len(
                self._addresses()
            ):
                return False  # it does not know all the brokers yet that have answered us
            return done(f"CreateTopics {name}", result.error_code, result.error_message)

        self._until(f"topic {name} is created", attempt)
        self._until(f"every broker knows the leaders of {name}", lambda _: self._is_led_everywhere(name, partitions))

    def delete_topic(self, name: str) -> None:
        """Delete it and wait until no running broker knows it and another one can have its name."""
        request = _DeleteTopicsByName(topic_names=[name], timeout_ms=10_000)

        def attempt(tries: int) -> bool:
            (result,) = self._controller(request, delete_topics.DeleteTopicsResponse).responses
            if tries and result.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                return True
            return done(f"DeleteTopics {name}", result.error_code, result.error_message)

        self._until(f"topic {name} is deleted", attempt)
        self._until(
            f"no broker knows {name}", lambda _: all(self.topic(name, seen_by=n) is None for n in self._addresses())
        )
        self._until(f"the name {name} is free", lambda _: self._is_free(name))

    def add_partitions(self, name: str, partitions: int) -> None:
        """Grow the topic to this many partitions in all, and wait until every running broker knows their leaders."""
        topic = create_partitions.CreatePartitionsTopic(name=name, count=partitions, assignments=None)
        request = create_partitions.CreatePartitionsRequest(topics=[topic], timeout_ms=10_000)

        def attempt(tries: int) -> bool:
            (result,) = self._controller(request, create_partitions.CreatePartitionsResponse).results
            if tries and len(self._known(name)) == partitions:
                return True
            return done(f"CreatePartitions {name}", result.error_code, result.error_message)

        self._until(f"{name} has {partitions} partitions", attempt)
        self._until(f"every broker knows the leaders of {name}", lambda _: self._is_led_everywhere(name, partitions))

    def alter_topic(self, name: str, config: Mapping[str, str | None]) -> None:
        """Set the topic's options; None puts one back to its default."""
        self._alter(TOPIC_RESOURCE, name, config, None)

    def alter_broker(self, node_id: int, config: Mapping[str, str | None]) -> None:
        """Set a broker's dynamic options (also to make it read its certificates again)."""
        self._alter(BROKER_RESOURCE, str(node_id), config, node_id)

    def alter_client_metrics(self, subscription: str, config: Mapping[str, str | None]) -> None:
        """Set what clients are asked to push (KIP-714): "metrics", "interval.ms", "match"; None takes one off."""
        self._alter(CLIENT_METRICS_RESOURCE, subscription, config, None)

    def alter_client_quota(self, client_id: str, quotas: Mapping[str, float | None]) -> None:
        """Set a client's quotas, "producer_byte_rate" in bytes a second, per broker; None takes one off."""
        entry = client_quotas.EntryData(
            entity=[client_quotas.EntityData(entity_type="client-id", entity_name=client_id)],
            ops=[
                client_quotas.OpData(key=key, value=value or 0.0, remove=value is None) for key, value in quotas.items()
            ],
        )
        request = client_quotas.AlterClientQuotasRequest(entries=[entry])

        def attempt(_: int) -> bool:
            (result,) = self._controller(request, client_quotas.AlterClientQuotasResponse).entries
            return done(f"AlterClientQuotas {client_id}", result.error_code, result.error_message)

        self._until(f"the quotas of {client_id} are set", attempt)

    def move_leader(self, topic: str, partition: int, to_node: int) -> None:
        """Make this broker the leader, as a replica if it is none yet; returns when every running broker knows.

        The broker goes to the front of the replica list (it takes the last replica's place if it is new), then the
        preferred replica is elected.
        """
        before = self._known(topic)[partition]
        others = [node for node in before.replicas if node != to_node]
        replicas = [to_node, *others][: len(before.replicas)]
        if before.leader == to_node and list(before.replicas) == replicas:
            return
        name = f"{topic}-{partition}"
        self._until(f"{name} has replicas {replicas}", lambda _: self._reassign(topic, partition, replicas))
        self._until(
            f"{name} is in sync on broker {to_node}",
            lambda _: (
                self._known(topic)[partition].replicas == tuple(replicas)
                and to_node in self._known(topic)[partition].in_sync
            ),
        )
        self._until(f"broker {to_node} is elected leader of {name}", lambda _: self._elect(topic, partition))
        self._until(
            f"every broker knows that {to_node} leads {name}",
            lambda _: all(
                (seen := self.topic(topic, seen_by=node)) is not None and seen[partition].leader == to_node
                for node in self._addresses()
            ),
        )

    def wait_all_in_sync(self, topic: str) -> None:
        """Wait until every partition has a leader and all its replicas in sync, in every running broker's eyes."""

        def is_in_sync(_: int) -> bool:
            for node in self._addresses():
                partitions = self.topic(topic, seen_by=node)
                if not partitions or any(
                    each.leader < 0 or set(each.in_sync) != set(each.replicas) for each in partitions
                ):
                    return False
            return True

        self._until(f"every replica of {topic} is in sync", is_in_sync)

    # One attempt each.

    def _reassign(self, topic: str, partition: int, replicas: list[int]) -> bool:
        wanted = reassignments.ReassignablePartition(partition_index=partition, replicas=replicas)
        request = reassignments.AlterPartitionReassignmentsRequest(
            timeout_ms=10_000, topics=[reassignments.ReassignableTopic(name=topic, partitions=[wanted])]
        )
        answer = self._controller(request, reassignments.AlterPartitionReassignmentsResponse)
        what = f"AlterPartitionReassignments {topic}-{partition}"
        if not done(what, answer.error_code, answer.error_message):
            return False
        result = answer.responses[0].partitions[0]
        return done(what, result.error_code, result.error_message)

    def _elect(self, topic: str, partition: int) -> bool:
        request = elections.ElectLeadersRequest(
            election_type=0,  # the preferred replica
            topic_partitions=[elections.TopicPartitions(topic=topic, partitions=[partition])],
            timeout_ms=10_000,
        )
        answer = self._controller(request, elections.ElectLeadersResponse)
        what = f"ElectLeaders {topic}-{partition}"
        if not done(what, answer.error_code, None):
            return False
        result = answer.replica_election_results[0].partition_result[0]
        if result.error_code == ErrorCode.ELECTION_NOT_NEEDED:
            return True
        if result.error_code == ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE:
            return False  # in sync for us, not yet for the controller
        return done(what, result.error_code, result.error_message)

    def _alter(self, kind: int, name: str, config: Mapping[str, str | None], node_id: int | None) -> None:
        resource = incremental_alter_configs.AlterConfigsResource(
            resource_type=kind,
            resource_name=name,
            configs=[
                incremental_alter_configs.AlterableConfig(
                    name=key, config_operation=_DELETE if value is None else _SET, value=value
                )
                for key, value in config.items()
            ],
        )
        request = incremental_alter_configs.IncrementalAlterConfigsRequest(resources=[resource])
        answer_type = incremental_alter_configs.IncrementalAlterConfigsResponse

        def attempt(_: int) -> bool:
            answer = (
                self._controller(request, answer_type)
                if node_id is None
                else self._request(request, answer_type, node_id)
            )
            (result,) = answer.responses
            return done(f"IncrementalAlterConfigs {name}", result.error_code, result.error_message)

        self._until(f"the options of {name} are set", attempt)

    def _end_offset(self, topic: str, partition: int) -> int:
        wanted = offsets.ListOffsetsPartition(partition_index=partition, timestamp=_LATEST)
        request = offsets.ListOffsetsRequest(
            topics=[offsets.ListOffsetsTopic(name=topic, partitions=[wanted])], replica_id=-1
        )
        found: list[int] = []

        def attempt(_: int) -> bool:
            leader = self._known(topic)[partition].leader
            if leader not in self._addresses():
                return False
            result = self._request(request, offsets.ListOffsetsResponse, leader).topics[0].partitions[0]
            if result.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                return False  # the broker that told of the partition is ahead of its leader: a partition just made
            if not done(f"ListOffsets {topic}-{partition}", result.error_code, None):
                return False
            found.append(result.offset)
            return True

        self._until(f"the leader of {topic}-{partition} tells its end offset", attempt)
        return found[0]

    def _is_free(self, name: str) -> bool:
        """Return whether the name is free: with ZooKeeper the controller frees it a little after the brokers."""
        topic = create_topics.CreatableTopic(name=name, num_partitions=1, replication_factor=1)
        request = create_topics.CreateTopicsRequest(topics=[topic], timeout_ms=10_000, validate_only=True)
        (result,) = self._controller(request, create_topics.CreateTopicsResponse).topics
        return result.error_code != ErrorCode.TOPIC_ALREADY_EXISTS

    def _is_led_everywhere(self, name: str, count: int) -> bool:
        for node in self._addresses():
            partitions = self.topic(name, seen_by=node)
            if partitions is None or len(partitions) != count or any(each.leader < 0 for each in partitions):
                return False
        return True

    def _known(self, topic: str) -> list[PartitionState]:
        partitions = self.topic(topic)
        if partitions is None:
            raise KafkaAdminError(f"Metadata of {topic}", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return partitions
