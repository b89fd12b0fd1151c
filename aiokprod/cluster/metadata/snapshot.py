"""`ClusterSnapshot`: the known state of the cluster at one moment. Immutable; a new one replaces the old one whole.

The cache holds one; every answer to a Metadata request and every leader hint makes the next. An old one that is kept
stays consistent.

Invariants:

- Within one incarnation of a topic (one topic id) a leader epoch never decreases and partitions never disappear: an
  answer that says otherwise comes from a broker that lags behind (KIP-320, KIP-516; `# faults: T8, T10`).
- A new topic id is a new topic and replaces the old one whole. A replaced id never returns: Kafka does not reuse ids, so
  only a lagging broker can still name it.
- A leader is a broker of this snapshot or -1 (`# faults: T12`).
- No allocation is sized by a number from the network; impossible entries are dropped (`# faults: H16`).
- An unchanged part stays the same object, so that a comparison with `is` finds the changes.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from operator import is_
from types import MappingProxyType
from typing import Final, NamedTuple

from aiokprod.cluster.hosts import can_be_host
from aiokprod.cluster.metadata.slices import at_once
from aiokprod.values import FrozenValue
from aiokprod.wire.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from aiokprod.wire.reader import ZERO_UUID

NO_LEADER: Final = -1

LEADER_NOT_AVAILABLE: Final = 5
REFUSED: Final = frozenset({17, 29})
"""INVALID_TOPIC_EXCEPTION and TOPIC_AUTHORIZATION_FAILED: asking again soon does not help."""

MAX_BROKERS: Final = 10_000
"""Ten times the largest cluster known; the rest of a longer list is ignored (`# faults: H16`)."""

MAX_RACK: Final = 255
"""Characters. The library does not use racks, and one of megabytes would be kept with its broker."""

MAX_PARTITION: Final = 1_000_000
"""Kafka's metadata log fails far below this; a larger index is a broken entry and not a gap in the list."""

REWINDS_BELIEVED: Final = 5
"""Without topic ids (brokers before 2.8) a re-created topic shows only in epochs that decreased. After this many answers
in a row that say so, the topic counts as re-created (franz-go waits for as many)."""

PARTITIONS_PER_SLICE: Final = 4_000
"""About 5 ms of merging."""

BROKERS_PER_SLICE: Final = 2_000
"""Checking ten thousand brokers takes 10 ms, and the listeners take longer; an answer of this many gets pauses."""

FORMER_IDS_KEPT: Final = 8
"""Replaced topic ids kept per topic: a lagging broker misses a few re-creations, not many."""


class BrokerNode(NamedTuple):
    """A broker, as the cluster announces it."""

    id: int
    host: str
    port: int
    rack: str | None = None


class LeaderHint(NamedTuple):
    """The leader of a partition as a Produce answer names it: -1 for none; `endpoint` is its address, if given."""

    topic: str
    partition: int
    leader_id: int
    leader_epoch: int
    endpoint: BrokerNode | None


class PartitionSnapshot(NamedTuple):
    """A partition. `leader_id` is -1 while it has no known leader."""

    partition: int
    leader_id: int
    leader_epoch: int
    error_code: int = 0


@dataclass(frozen=True, slots=True, kw_only=True, repr=False, eq=False)
class TopicSnapshot(FrozenValue):
    """A topic that has been asked for.

    Attributes:
        name: the name of the topic.
        topic_id: 16 bytes; zeros if the brokers know no topic ids.
        error_code: 0, or the error of the last answer; the partitions are then those of an earlier answer.
        partitions: indexed by partition, without gaps; empty only with an error.
        former_ids: ids of earlier incarnations, so that a lagging broker cannot bring one back.
        rewinds: answers in a row that contradicted a known partition or epoch, while there are no topic ids.
        incarnation: number of re-creations found without topic ids.
    """

    name: str
    topic_id: bytes = ZERO_UUID
    error_code: int = 0
    partitions: tuple[PartitionSnapshot, ...] = ()
    former_ids: tuple[bytes, ...] = ()
    rewinds: int = 0
    incarnation: int = 0

    @property
    def is_usable(self) -> bool:
        """Return whether records may be sent to its partitions."""
        return self.error_code == 0 and bool(self.partitions)

    @property
    def is_settled(self) -> bool:
        """Return whether asking again soon would be useless: all is known, or access is refused."""
        if self.error_code:
            return self.error_code in REFUSED
        return bool(self.partitions) and all(partition.leader_id >= 0 for partition in self.partitions)


def _no_brokers() -> Mapping[int, BrokerNode]:
    return MappingProxyType({})


def _no_topics() -> Mapping[str, TopicSnapshot]:
    return MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True, repr=False, eq=False)
class ClusterSnapshot(FrozenValue):
    """Brokers and topics at one moment. `version` grows by one with every answer and every set of hints applied."""

    version: int = 0
    cluster_id: str | None = None
    controller_id: int = -1
    brokers: Mapping[int, BrokerNode] = field(default_factory=_no_brokers)
    topics: Mapping[str, TopicSnapshot] = field(default_factory=_no_topics)

    def unsettled(self, names: Iterable[str]) -> list[str]:
        """Return those of the names that are unknown, have a temporary error, or a partition without a leader."""
        topics = self.topics
        return [name for name in names if (topic := topics.get(name)) is None or not topic.is_settled]

    def with_hints(self, hints: Iterable[LeaderHint]) -> ClusterSnapshot:
        """Return a snapshot with the leaders that a Produce answer names (KIP-951, `# faults: P7`).

        Returns the same object if no hint is new: an older epoch, an unknown partition, or a broker whose address is in
        neither the snapshot nor the answer. A hint (-1, epoch) means that there is no leader (`# broker: 7.8`).
        """
        learnt: dict[int, BrokerNode] = {}
        changed: dict[str, list[PartitionSnapshot]] = {}
        for topic, partition, leader_id, leader_epoch, endpoint in hints:
            known = self.topics.get(topic)
            if known is None:
                continue
            partitions = changed.get(topic, known.partitions)
            if not 0 <= partition < len(partitions) or leader_epoch < 0:
                continue
            current = partitions[partition]
            if leader_epoch < current.leader_epoch:
                continue
            if leader_epoch == current.leader_epoch and (current.leader_id >= 0 or leader_id < 0):
                continue
            if leader_id >= 0:
                node = learnt.get(leader_id) or self.brokers.get(leader_id)
                is_named = endpoint is not None and endpoint.id == leader_id
                if endpoint is not None and is_named and endpoint != node and _is_possible(endpoint):
                    told = _without_absurd_rack(endpoint)
                    if told != node:
                        learnt[leader_id] = told
                elif node is None:
                    continue
            if topic not in changed:
                changed[topic] = list(partitions)
            changed[topic][partition] = PartitionSnapshot(partition, max(leader_id, NO_LEADER), leader_epoch)
        if not changed:
            return self
        topics = dict(self.topics)
        for topic, merged in changed.items():
            topics[topic] = replace(topics[topic], partitions=tuple(merged))
        return replace(
            self,
            version=self.version + 1,
            brokers=MappingProxyType({**self.brokers, **learnt}) if learnt else self.brokers,
            topics=MappingProxyType(topics),
        )


def believable_brokers(brokers: Iterable[MetadataResponseBroker]) -> dict[int, BrokerNode]:
    """Return the possible brokers of a list; of two entries with one id the first counts (`# faults: H16`)."""
    nodes: dict[int, BrokerNode] = {}
    for broker in islice(brokers, MAX_BROKERS):
        node = BrokerNode(id=broker.node_id, host=broker.host, port=broker.port, rack=broker.rack)
        if _is_possible(node):
            nodes.setdefault(node.id, _without_absurd_rack(node))
    return nodes


def names_a_broker(brokers: Iterable[MetadataResponseBroker]) -> bool:
    """Return whether `believable_brokers` would return any; stops at the first."""
    return any(
        _is_possible(BrokerNode(id=broker.node_id, host=broker.host, port=broker.port))
        for broker in islice(brokers, MAX_BROKERS)
    )


def merge_answer(
    old: ClusterSnapshot, answer: MetadataResponse, *, asked: Collection[str], keep: Collection[str]
) -> ClusterSnapshot:
    """Return the next snapshot without pauses: see `merge_in_slices`."""
    return at_once(merge_in_slices(old, answer, asked=asked, keep=keep))


def merge_in_slices(
    old: ClusterSnapshot, answer: MetadataResponse, *, asked: Collection[str], keep: Collection[str]
) -> Generator[None, None, ClusterSnapshot]:
    """Merge an answer into a snapshot and return the next one. Pauses every few milliseconds (`# faults: T19`).

    Args:
        old: the current snapshot.
        answer: an answer without a top-level error.
        asked: the topics of the request; others in the answer are ignored (`# faults: H11`), and of two entries for
            one topic the first counts.
        keep: the topics still of interest; the others are dropped.
    """
    given = believable_brokers(answer.brokers)
    has_many = len(answer.brokers) >= BROKERS_PER_SLICE
    if has_many:
        yield
    brokers = {node.id: old.brokers[node.id] if old.brokers.get(node.id) == node else node for node in given.values()}
    gone = old.brokers.keys() - brokers.keys()
    asked = frozenset(asked)
    answers: dict[str, MetadataResponseTopic] = {}
    for topic in answer.topics:
        if topic.name is not None and topic.name in asked:
            answers.setdefault(topic.name, topic)
    topics: dict[str, TopicSnapshot] = {}
    in_slice = 0
    for name in list(keep):
        known = old.topics.get(name)
        merged = known
        if name in answers:
            in_slice += len(answers[name].partitions) + 1
            merged = yield from _merge_topic(known, answers[name], brokers.keys())
        if merged is not None:
            topics[name] = _without_leaders(merged, gone) if gone else merged
        if in_slice >= PARTITIONS_PER_SLICE:
            in_slice = 0
            yield
    if has_many:
        yield  # the listeners need time for each broker too
    return ClusterSnapshot(
        version=old.version + 1,
        cluster_id=old.cluster_id if answer.cluster_id is None else answer.cluster_id,
        controller_id=answer.controller_id,
        brokers=MappingProxyType(brokers),
        topics=MappingProxyType(topics),
    )


def _merge_topic(
    known: TopicSnapshot | None, answer: MetadataResponseTopic, brokers: Collection[int]
) -> Generator[None, None, TopicSnapshot]:
    """Merge one topic of an answer into what is known of it. Returns `known` itself if nothing changed."""
    name = answer.name
    assert name is not None
    if known is None:
        known = TopicSnapshot(name=name, error_code=LEADER_NOT_AVAILABLE)
    if answer.error_code:
        # The topic id is null with any error (broker: 8.7): this says nothing about the partitions, which stay.
        return known if answer.error_code == known.error_code else replace(known, error_code=answer.error_code)
    topic_id = answer.topic_id
    if topic_id in known.former_ids:
        return known
    old_id = known.topic_id
    if ZERO_UUID not in (topic_id, old_id) and topic_id != old_id:
        former_ids = (*known.former_ids, old_id)[-FORMER_IDS_KEPT:]
        known = TopicSnapshot(name=name, error_code=LEADER_NOT_AVAILABLE, topic_id=topic_id, former_ids=former_ids)
    given = _given(answer.partitions)
    rewinds = 0
    if ZERO_UUID in (topic_id, old_id) and _takes_back(known.partitions, given):
        rewinds = known.rewinds + 1
        if rewinds >= REWINDS_BELIEVED:  # a re-creation, as far as epochs can tell
            known, rewinds = replace(known, partitions=(), incarnation=known.incarnation + 1), 0
        else:
            # Brokers may have begun to tell ids while the topic was made again. With its id at once, the next answers would
            # be about the same id, and would not be counted: partitions that are gone would stay for ever.
            topic_id = old_id
    elif old_id == ZERO_UUID and _has_two_leaders(known.partitions, given):
        known = replace(known, partitions=(), incarnation=known.incarnation + 1)
    partitions = yield from _merge_partitions(known.partitions, given, brokers)
    merged = replace(
        known,
        topic_id=old_id if topic_id == ZERO_UUID else topic_id,
        error_code=0 if partitions else LEADER_NOT_AVAILABLE,  # faults: T9
        partitions=partitions,
        rewinds=rewinds,
    )
    return known if merged == known else merged


def _given(partitions: Iterable[MetadataResponsePartition]) -> dict[int, MetadataResponsePartition]:
    """Return the partitions by index, without impossible ones; of two entries the first counts."""
    given: dict[int, MetadataResponsePartition] = {}
    for partition in partitions:
        if 0 <= partition.partition_index < MAX_PARTITION:
            given.setdefault(partition.partition_index, partition)
    return given


def _takes_back(known: tuple[PartitionSnapshot, ...], given: Mapping[int, MetadataResponsePartition]) -> bool:
    """Return whether the answer lacks a known partition or has an older epoch."""
    return any((answer := given.get(old.partition)) is None or answer.leader_epoch < old.leader_epoch for old in known)


def _has_two_leaders(known: tuple[PartitionSnapshot, ...], given: Mapping[int, MetadataResponsePartition]) -> bool:
    """Return whether the answer names another leader for the same epoch.

    An epoch has one leader, so this is another topic of the same name. (Brokers that know no epochs send -1.)
    """
    return any(
        (answer := given.get(old.partition)) is not None
        and answer.leader_epoch == old.leader_epoch >= 0
        and answer.leader_id != old.leader_id
        and answer.leader_id >= 0
        and old.leader_id >= 0
        for old in known
    )


def _merge_partitions(
    known: tuple[PartitionSnapshot, ...], given: Mapping[int, MetadataResponsePartition], brokers: Collection[int]
) -> Generator[None, None, tuple[PartitionSnapshot, ...]]:
    """Merge all partitions; a list with a gap adds none: a wrong count would send keys to the wrong partitions."""
    count = max(len(known), len(given))
    merged: list[PartitionSnapshot] = []
    for index in range(count):
        if index % PARTITIONS_PER_SLICE == PARTITIONS_PER_SLICE - 1:
            yield
        old = known[index] if index < len(known) else None
        answer = given.get(index)
        if answer is not None:
            merged.append(_merge_partition(old, answer, brokers))
        elif old is not None:
            merged.append(old)
        else:
            break
    if len(merged) < count or any(index >= count for index in given):
        del merged[len(known) :]
    return known if len(merged) == len(known) and all(map(is_, merged, known)) else tuple(merged)


def _merge_partition(
    old: PartitionSnapshot | None, answer: MetadataResponsePartition, brokers: Collection[int]
) -> PartitionSnapshot:
    epoch = max(answer.leader_epoch, -1)
    if old is not None and epoch < old.leader_epoch:
        return old
    leader_id = answer.leader_id if answer.leader_id in brokers else NO_LEADER
    if (
        old is not None
        and old.leader_id == leader_id
        and old.leader_epoch == epoch
        and old.error_code == answer.error_code
    ):
        return old
    return PartitionSnapshot(answer.partition_index, leader_id, epoch, answer.error_code)


def _without_leaders(topic: TopicSnapshot, gone: Collection[int]) -> TopicSnapshot:
    """Return the topic without the leaders that have left the cluster (`# faults: B13, T12`)."""
    if not any(partition.leader_id in gone for partition in topic.partitions):
        return topic
    return replace(
        topic,
        partitions=tuple(
            partition._replace(leader_id=NO_LEADER) if partition.leader_id in gone else partition
            for partition in topic.partitions
        ),
    )


def _is_possible(node: BrokerNode) -> bool:
    """Return whether the broker's id and address are possible ones (`# faults: H16`)."""
    return node.id >= 0 and 0 < node.port <= 65_535 and can_be_host(node.host)


def _without_absurd_rack(node: BrokerNode) -> BrokerNode:
    return node if node.rack is None or len(node.rack) <= MAX_RACK else node._replace(rack=None)
