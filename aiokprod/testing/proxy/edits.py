"""`Edits`: what item faults make of one request that passes a proxy, and of its answer. Pure.

What fails, or is left out, without being carried out is taken out of the request; the broker never sees it, and the
answer gets it put in. What is carried out all the same is changed in the answer. A request of which nothing is left is
answered here. The shapes of requests and answers are a table; Metadata is asked about when its answer is there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields
from typing import Any, Final, TypeAlias, get_args, get_type_hints
from zlib import crc32

from aiokprod.testing.faults import Fail, ItemEffect, Omit
from aiokprod.wire.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from aiokprod.wire.messages.metadata import MetadataResponse, MetadataResponseTopic
from aiokprod.wire.messages.produce import (
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
)

from .cluster_view import ClusterView
from .codecs import Codec, Message

Item: TypeAlias = tuple[str, int]
"""Topic and partition; -1 for a topic as a whole."""

Ask: TypeAlias = Callable[[str, int], ItemEffect | None]
"""What befalls this item; asking counts."""

PRODUCE, METADATA, FIND_COORDINATOR = 0, 3, 10
WITH_LEADER_HINT: Final = 10
WITH_MESSAGES: Final = 8
BATCHED_COORDINATORS: Final = 4


@dataclass(frozen=True, slots=True)
class Shape:
    """Where a message keeps topics and partitions, and their codes."""

    topics: str
    name: str = "name"
    partitions: str | None = "partitions"
    index: str = "partition_index"
    code: str = "error_code"


@dataclass(frozen=True, slots=True)
class Shapes:
    """Those of one API."""

    request: Shape
    answer: Shape


_BY_PARTITION: Final = Shapes(Shape("topics"), Shape("topics"))
_SHAPES: Final[dict[int, Shapes]] = {
    PRODUCE: Shapes(
        Shape("topic_data", partitions="partition_data", index="index"),
        Shape("responses", partitions="partition_responses", index="index"),
    ),
    1: Shapes(Shape("topics", "topic", index="partition"), Shape("responses", "topic")),
    2: _BY_PARTITION,
    8: _BY_PARTITION,
    19: Shapes(Shape("topics", partitions=None), Shape("topics", partitions=None)),
    20: Shapes(Shape("topics", partitions=None), Shape("responses", partitions=None)),
    21: _BY_PARTITION,
    28: _BY_PARTITION,
    37: Shapes(Shape("topics", partitions=None), Shape("results", partitions=None)),
}


def items_of(key: int, request: Message, view: ClusterView) -> list[Item]:
    """The (topic, partition) pairs a request names, in the order in which a broker goes through them."""
    if key == METADATA:
        return [(view.name_of(topic.name, topic.topic_id), -1) for topic in _list(request, "topics")]
    if (shapes := _SHAPES.get(key)) is None:
        return []
    found = list(_entries(request, shapes.request))
    if isinstance(request, ProduceRequest):
        found = _in_broker_order(found)
    return [(_name(entry.topic, shapes.request, view), entry.partition) for entry in found]


@dataclass(slots=True)
class Edits:
    """What becomes of the items of one request."""

    key: int
    version: int
    view: ClusterView
    taken_out: list[tuple[Any, int, ItemEffect]] = field(default_factory=list)
    """Topic entry of the request, partition, effect."""
    changed: dict[Item, ItemEffect] = field(default_factory=dict)
    whole: Fail | None = None
    is_answered_here: bool = False
    closes: bool = False
    """A batch sent with acks=0 was refused: the broker closes. broker: 5.1"""

    def __bool__(self) -> bool:
        return bool(self.taken_out or self.changed or self.whole)


def judge(key: int, version: int, request: Message, ask: Ask, view: ClusterView) -> Edits:
    """Ask the rules about each item, in the broker's order; what is not to be carried out is taken out of `request`."""
    edits = Edits(key, version, view)
    shapes = _SHAPES.get(key)
    if key == METADATA:
        return edits
    if shapes is None:
        effect = ask("", -1)
        edits.whole = effect if isinstance(effect, Fail) else None
        edits.is_answered_here = edits.whole is not None
        return edits
    found = list(_entries(request, shapes.request))
    for entry in _in_broker_order(found) if isinstance(request, ProduceRequest) else found:
        name = _name(entry.topic, shapes.request, view)
        effect = ask(name, entry.partition)
        if effect is None:
            continue
        if isinstance(request, ProduceRequest):
            edits.closes = edits.closes or (request.acks == 0 and isinstance(effect, Fail))
            if effect.after_append:
                edits.changed[name, entry.partition] = effect
                continue
        entry.remove()
        edits.taken_out.append((entry.topic, entry.partition, effect))
    if edits.taken_out:
        edits.is_answered_here = not any(True for _ in _entries(request, shapes.request))
    return edits


def answer_here(edits: Edits, codec: Codec, request: Message) -> Message:
    """The whole answer, of a request of which nothing is left."""
    answer: Any = codec.response()
    if edits.whole is not None:
        if isinstance(request, FindCoordinatorRequest) and edits.version >= BATCHED_COORDINATORS:
            return _no_coordinators(edits.whole, request)
        for name, value in (("error_code", edits.whole.code), ("error_message", edits.whole.message)):
            if any(one.name == name for one in fields(answer)):
                setattr(answer, name, value)
        for name in ("producer_id", "producer_epoch", "node_id", "port"):
            if any(one.name == name for one in fields(answer)):
                setattr(answer, name, -1)
    return put_in(edits, answer)


def put_in(edits: Edits, answer: Message) -> Message:
    """The answer with what was taken out, and with what was carried out changed."""
    shapes = _SHAPES.get(edits.key)
    if shapes is None:
        return answer
    if isinstance(answer, ProduceResponse):
        _change_appended(edits, answer)
    for topic, partition, effect in edits.taken_out:
        target = _answer_topic(answer, shapes, topic)
        if isinstance(effect, Fail):
            if shapes.answer.partitions is None:
                _refuse(target, shapes.answer, effect, edits.version)
            else:
                refused = _new_element(target, shapes.answer.partitions)
                setattr(refused, shapes.answer.index, partition)
                _refuse(refused, shapes.answer, effect, edits.version)
                if isinstance(refused, PartitionProduceResponse):
                    _hint(edits, refused, effect, _name(topic, shapes.request, edits.view))
                getattr(target, shapes.answer.partitions).append(refused)
    if isinstance(answer, ProduceResponse):
        _name_endpoints(edits.view, answer)
    return answer


def change_metadata(answer: MetadataResponse, ask: Ask, *, names_partitions: bool) -> None:
    """Metadata is carried out in any case; its topics and partitions are asked about one by one."""
    if names_partitions:
        for topic in answer.topics:
            kept = []
            for partition in topic.partitions:
                effect = ask(topic.name or "", partition.partition_index)
                if isinstance(effect, Fail):
                    partition.error_code = effect.code
                if not isinstance(effect, Omit):
                    kept.append(partition)
            topic.partitions = kept
    topics = []
    for topic in answer.topics:
        effect = ask(topic.name or "", -1)
        if isinstance(effect, Fail):
            topics.append(MetadataResponseTopic(name=topic.name, error_code=effect.code))
        elif not isinstance(effect, Omit):
            topics.append(topic)
    answer.topics = topics


# ---------------------------------------------------------------------- the door to messages of any shape
@dataclass(frozen=True, slots=True)
class _Entry:
    """One item where it stands in a request."""

    topic: Any
    partition: int
    remove: Callable[[], None]


def _list(message: object, name: str) -> list[Any]:
    return getattr(message, name) or []


def _entries(message: object, shape: Shape) -> Iterator[_Entry]:
    topics = _list(message, shape.topics)
    for topic in list(topics):
        if shape.partitions is None:
            yield _Entry(topic, -1, _Remover(topics, topic))
            continue
        partitions = _list(topic, shape.partitions)
        for partition in list(partitions):
            yield _Entry(topic, getattr(partition, shape.index), _Remover(partitions, partition, topics, topic))


class _Remover:
    """Takes an item out of its list, and a topic of which nothing is left out of its own."""

    def __init__(self, items: list[Any], item: Any, topics: list[Any] | None = None, topic: Any = None) -> None:
        self._items, self._item, self._topics, self._topic = items, item, topics, topic

    def __call__(self) -> None:
        _drop(self._items, self._item)
        if not self._items and self._topics is not None:
            _drop(self._topics, self._topic)


def _drop(items: list[Any], item: Any) -> None:
    items[:] = [one for one in items if one is not item]


def _name(topic: Any, shape: Shape, view: ClusterView) -> str:
    return view.name_of(getattr(topic, shape.name), getattr(topic, "topic_id", b""))


def _in_broker_order(found: list[_Entry]) -> list[_Entry]:
    """Topics by hash, partitions backwards. broker: 4.9"""
    backwards = list(reversed(found))
    return sorted(backwards, key=lambda entry: crc32(entry.topic.name.encode() + entry.topic.topic_id))


def _answer_topic(answer: Message, shapes: Shapes, asked: Any) -> Any:
    """The topic's place in the answer, made if it has none."""
    topics = _list(answer, shapes.answer.topics)
    name, topic_id = getattr(asked, shapes.request.name), getattr(asked, "topic_id", None)
    for topic in topics:
        if getattr(topic, shapes.answer.name) == name and topic_id in (None, getattr(topic, "topic_id", topic_id)):
            return topic
    made = _new_element(answer, shapes.answer.topics)
    setattr(made, shapes.answer.name, name)
    if topic_id is not None and hasattr(made, "topic_id"):
        made.topic_id = topic_id
    topics.append(made)
    return made


def _new_element(owner: object, name: str) -> Any:
    """A fresh element of a list of a message: its declared type says which."""
    (declared,) = (one for one in get_args(get_type_hints(type(owner))[name]) if one is not type(None))
    return (declared if not get_args(declared) else get_args(declared)[0])()


def _refuse(element: Any, shape: Shape, effect: Fail, version: int) -> None:
    setattr(element, shape.code, effect.code)
    has_messages = not isinstance(element, PartitionProduceResponse) or version >= WITH_MESSAGES
    nothing = {name: -1 for name in ("base_offset", "offset", "timestamp", "high_watermark", "low_watermark")}
    known: dict[str, object] = {**nothing, "records": b""}
    if has_messages:
        known["error_message"] = effect.message
    for one in fields(element):
        if one.name in known:
            setattr(element, one.name, known[one.name])


# ---------------------------------------------------------------------- what only Produce has
def _change_appended(edits: Edits, answer: ProduceResponse) -> None:
    for topic in answer.responses:
        name = edits.view.name_of(topic.name, topic.topic_id)
        kept = []
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
    """One endpoint per leader that is hinted at (broker: 7.7)."""
    hinted = {p.current_leader.leader_id for topic in answer.responses for p in topic.partition_responses}
    named = {endpoint.node_id for endpoint in answer.node_endpoints}
    for node_id in sorted(hinted - named):
        if (node := view.node(node_id)) is not None:
            answer.node_endpoints.append(
                NodeEndpoint(node_id=node.node_id, host=node.host, port=node.port, rack=node.rack)
            )


def _no_coordinators(effect: Fail, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
    return FindCoordinatorResponse(
        coordinators=[
            Coordinator(key=key, node_id=-1, port=-1, error_code=effect.code, error_message=effect.message)
            for key in request.coordinator_keys
        ]
    )
