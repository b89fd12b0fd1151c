"""`Edits`: the changes that item faults make to one request that passes a proxy, and to its answer. Pure.

What fails, or is left out, without being carried out is taken out of the request; the broker never sees it, and the
answer gets it put in. What is carried out all the same is changed in the answer. A request of which nothing is left is
answered here. Metadata is carried out in any case, and asked about when its answer is there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import Any, Final, TypeAlias

from aiokprod.testing.faults import Fail, ItemEffect, Omit
from aiokprod.testing.proxy.cluster_view import ClusterView
from aiokprod.testing.proxy.codecs import Codec, Message
from aiokprod.testing.proxy.shapes import (
    ADD_PARTITIONS,
    WITH_MESSAGES,
    entries,
    in_broker_order,
    list_of,
    name_of,
    place_in,
    put_refusal,
    shapes_of,
)
from aiokprod.wire.messages.metadata import MetadataResponse, MetadataResponsePartition, MetadataResponseTopic
from aiokprod.wire.messages.produce import (
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
)

Item: TypeAlias = tuple[str, int]
"""Topic and partition; -1 for a topic as a whole."""

Ask: TypeAlias = Callable[[str, int], ItemEffect | None]
"""A function that returns the effect on an item; each call counts as a hit."""

METADATA: Final = 3
WITH_LEADER_HINT: Final = 10
"""Produce: CurrentLeader and NodeEndpoints. broker: 7.7"""


def items_of(key: int, version: int, request: Message, view: ClusterView) -> list[Item]:
    """Return the (topic, partition) pairs that a request names."""
    if key == METADATA:
        return [(view.name_of(topic.name, topic.topic_id), -1) for topic in list_of(request, "topics")]
    if (shapes := shapes_of(key, version)) is None:
        return []
    return [(name_of(entry.topic, shapes.request, view), entry.partition) for entry in entries(request, shapes.request)]


@dataclass(slots=True)
class TakenOut:
    """An item that the broker does not see."""

    topic: Any
    """Its entry in the request."""
    partition: int
    effect: ItemEffect


@dataclass(slots=True)
class Edits:
    """The effects on the items of one request."""

    key: int
    version: int
    view: ClusterView
    taken_out: list[TakenOut] = field(default_factory=list[TakenOut])
    changed: dict[Item, ItemEffect] = field(default_factory=dict[Item, ItemEffect])
    """What is carried out all the same."""
    whole: Fail | None = None
    """The request as one item is refused."""
    is_answered_here: bool = False
    closes: bool = False
    """A batch sent with acks=0 was refused: the broker closes. broker: 5.1"""

    def __bool__(self) -> bool:
        return bool(self.taken_out or self.changed or self.whole)


def judge(key: int, version: int, request: Message, ask: Ask, view: ClusterView) -> Edits:
    """Ask about each item, in the broker's order; remove items from `request` that the broker must not carry out."""
    edits = Edits(key, version, view)
    if key == METADATA:
        return edits
    shapes = shapes_of(key, version)
    if shapes is None:
        effect = ask("", -1)
        edits.whole = effect if isinstance(effect, Fail) else None
        edits.is_answered_here = edits.whole is not None
        return edits
    found = list(entries(request, shapes.request))
    for entry in in_broker_order(found) if isinstance(request, ProduceRequest) else found:
        name = name_of(entry.topic, shapes.request, view)
        effect = ask(name, entry.partition)
        if effect is None:
            continue
        if isinstance(request, ProduceRequest):
            edits.closes = edits.closes or (request.acks == 0 and isinstance(effect, Fail))
            if effect.after_append:
                edits.changed[name, entry.partition] = effect
                continue
        # All partitions are added to a transaction, or none. broker: 10.9
        for out in found if key == ADD_PARTITIONS else [entry]:
            out.remove()
            edits.taken_out.append(TakenOut(out.topic, out.partition, effect))
        if key == ADD_PARTITIONS:
            break
    edits.is_answered_here = bool(edits.taken_out) and not any(True for _ in entries(request, shapes.request))
    return edits


def answer_here(edits: Edits, codec: Codec) -> Message:
    """Return the whole answer to a request of which no item is left."""
    answer = codec.response()
    if edits.whole is None:
        return put_in(edits, answer)
    known = {"error_code": edits.whole.code, "error_message": edits.whole.message}
    nothing = dict.fromkeys(("producer_id", "producer_epoch", "node_id", "port"), -1)
    for one in fields(answer):  # type: ignore[arg-type]  # generated messages are dataclasses
        if one.name in known or one.name in nothing:
            setattr(answer, one.name, known.get(one.name, -1))
    return answer


def put_in(edits: Edits, answer: Message) -> Message:
    """Return the answer with the removed items put back, and the served ones changed."""
    shapes = shapes_of(edits.key, edits.version)
    if shapes is None:
        return answer
    if isinstance(answer, ProduceResponse):
        _change_appended(edits, answer)
    for out in edits.taken_out:
        if isinstance(out.effect, Fail):
            refused = put_refusal(answer, shapes, out.topic, out.partition, out.effect, edits.version)
            if isinstance(refused, PartitionProduceResponse):
                _hint(edits, refused, out.effect, name_of(out.topic, shapes.request, edits.view))
        elif shapes.answer.partitions is not None:
            place_in(answer, shapes, out.topic)  # the topic is there, with the partitions that are not left out
    if isinstance(answer, ProduceResponse):
        _name_endpoints(edits.view, answer)
    return answer


def change_metadata(answer: MetadataResponse, ask: Ask, *, names_partitions: bool) -> None:
    """Apply effects to Metadata, which is always served, topic by topic and partition by partition."""
    if names_partitions:
        for topic in answer.topics:
            kept: list[MetadataResponsePartition] = []
            for partition in topic.partitions:
                effect = ask(topic.name or "", partition.partition_index)
                if isinstance(effect, Fail):
                    partition.error_code = effect.code
                if not isinstance(effect, Omit):
                    kept.append(partition)
            topic.partitions = kept
    topics: list[MetadataResponseTopic] = []
    for topic in answer.topics:
        effect = ask(topic.name or "", -1)
        if isinstance(effect, Fail):
            topics.append(MetadataResponseTopic(name=topic.name, error_code=effect.code))
        elif not isinstance(effect, Omit):
            topics.append(topic)
    answer.topics = topics


# ---------------------------------------------------------------------- what only Produce has
def _change_appended(edits: Edits, answer: ProduceResponse) -> None:
    for topic in answer.responses:
        name = edits.view.name_of(topic.name, topic.topic_id)
        kept: list[PartitionProduceResponse] = []
        for partition in topic.partition_responses:
            effect = edits.changed.get((name, partition.index))
            if effect is None or partition.error_code != 0:  # what the broker refused stays refused
                kept.append(partition)
            elif isinstance(effect, Fail):
                refused = PartitionProduceResponse(
                    index=partition.index, error_code=effect.code, base_offset=partition.base_offset
                )
                if edits.version >= WITH_MESSAGES:
                    refused.error_message = effect.message
                _hint(edits, refused, effect, name)
                kept.append(refused)
        topic.partition_responses = kept


def _hint(edits: Edits, answer: PartitionProduceResponse, effect: Fail, topic: str) -> None:
    leader = edits.view.leader(topic, answer.index) if effect.with_hint else None
    if leader is not None and edits.version >= WITH_LEADER_HINT:
        answer.current_leader = LeaderIdAndEpoch(leader_id=leader.node_id, leader_epoch=leader.epoch)


def _name_endpoints(view: ClusterView, answer: ProduceResponse) -> None:
    """Name one endpoint per leader in a hint (broker: 7.7)."""
    hinted = {p.current_leader.leader_id for topic in answer.responses for p in topic.partition_responses}
    named = {endpoint.node_id for endpoint in answer.node_endpoints}
    for node_id in sorted(hinted - named):
        if (node := view.node(node_id)) is not None:
            answer.node_endpoints.append(
                NodeEndpoint(node_id=node.node_id, host=node.host, port=node.port, rack=node.rack)
            )
