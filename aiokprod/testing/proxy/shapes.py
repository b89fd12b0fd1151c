"""The fields in which messages keep their items and error codes: a table over the APIs, and the functions that use it.

An item is a partition of a topic, or a topic, group, transactional id or resource as a whole. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any, Final, get_args, get_type_hints
from zlib import crc32

from aiokprod.testing.faults import Fail
from aiokprod.testing.faults.apis import PRODUCE
from aiokprod.testing.proxy.cluster_view import ClusterView
from aiokprod.testing.proxy.codecs import Message
from aiokprod.wire.messages.produce import PartitionProduceResponse

FIND_COORDINATOR, OFFSET_FETCH, DELETE_TOPICS, ADD_PARTITIONS = 10, 9, 20, 24
WITH_MESSAGES: Final = 8
"""From Produce v8 on an error has a message. broker: 4.10"""


@dataclass(frozen=True, slots=True)
class Shape:
    """The fields in which a message keeps its items.

    Attributes:
        entries: the list of topics, or of groups, ids, resources.
        name: the field of an entry that names it; empty: the entry is its own name.
        partitions: the list of its partitions; None: the entry is the item.
        index: the field of a partition that tells its number; empty: the partition is its number.
        code: where the item's error code is.
        is_topic: the name is a topic's, and faults may name it.
    """

    entries: str
    name: str = "name"
    partitions: str | None = "partitions"
    index: str = "partition_index"
    code: str = "error_code"
    is_topic: bool = True


@dataclass(frozen=True, slots=True)
class Shapes:
    """The shapes of one API's request and answer, for a range of versions."""

    request: Shape
    answer: Shape
    lowest: int = 0
    highest: int = 99


_BY_PARTITION: Final = Shapes(Shape("topics"), Shape("topics"))


def _by_entry(request: str, answer: str, name: str = "name", **where: int) -> Shapes:
    return Shapes(Shape(request, name, None), Shape(answer, name, None), **where)


def _by_name(request: str, answer: str, name: str, *, is_topic: bool = False, **where: int) -> Shapes:
    """Return the shape of requests that list bare names."""
    return Shapes(Shape(request, "", None, is_topic=is_topic), Shape(answer, name, None), **where)


_TABLE: Final[dict[int, tuple[Shapes, ...]]] = {
    PRODUCE: (
        Shapes(
            Shape("topic_data", partitions="partition_data", index="index"),
            Shape("responses", partitions="partition_responses", index="index"),
        ),
    ),
    1: (Shapes(Shape("topics", "topic", index="partition"), Shape("responses", "topic")),),
    2: (_BY_PARTITION,),
    8: (_BY_PARTITION,),
    OFFSET_FETCH: (
        Shapes(
            Shape("groups", "group_id", None, is_topic=False),
            Shape("groups", "group_id", None, is_topic=False),
            lowest=8,
        ),
    ),
    FIND_COORDINATOR: (_by_name("coordinator_keys", "coordinators", "key", lowest=4),),
    15: (_by_name("groups", "groups", "group_id"),),
    19: (_by_entry("topics", "topics"),),
    DELETE_TOPICS: (
        _by_name("topic_names", "responses", "name", is_topic=True, highest=5),
        _by_entry("topics", "responses", lowest=6),
    ),
    21: (_BY_PARTITION,),
    ADD_PARTITIONS: (
        Shapes(
            Shape("v3_and_below_topics", index=""),
            Shape("results_by_topic_v3_and_below", partitions="results_by_partition", code="partition_error_code"),
            highest=3,
        ),
    ),
    28: (_BY_PARTITION,),
    32: (_by_entry("resources", "results", "resource_name"),),
    37: (_by_entry("topics", "results"),),
    42: (_by_name("groups_names", "results", "group_id"),),
    44: (_by_entry("resources", "responses", "resource_name"),),
    69: (_by_name("group_ids", "groups", "group_id"),),
    61: (Shapes(Shape("topics", partitions="partition_indexes", index=""), Shape("topics")),),
    65: (_by_name("transactional_ids", "transaction_states", "transactional_id"),),
}


def shapes_of(key: int, version: int) -> Shapes | None:
    """Return the shapes of this version of an API; None if a request is a single item."""
    return next((one for one in _TABLE.get(key, ()) if one.lowest <= version <= one.highest), None)


@dataclass(frozen=True, slots=True, eq=False)
class Entry:
    """One item, and its place in a request."""

    topic: Any
    partition: int
    _items: list[Any]
    _item: Any
    _topics: list[Any] | None = None

    def remove(self) -> None:
        """Take it out, and the topic with it if nothing of it is left."""
        _drop(self._items, self._item)
        if not self._items and self._topics is not None:
            _drop(self._topics, self.topic)


def entries(message: object, shape: Shape) -> Iterator[Entry]:
    """Return the items of a message, in its order."""
    topics = list_of(message, shape.entries)
    for topic in list(topics):
        if shape.partitions is None:
            yield Entry(topic, -1, topics, topic)
            continue
        partitions = list_of(topic, shape.partitions)
        for partition in list(partitions):
            index = getattr(partition, shape.index) if shape.index else partition
            yield Entry(topic, index, partitions, partition, topics)


def in_broker_order(found: list[Entry]) -> list[Entry]:
    """Return the items of a Produce request in a broker's order: topics by hash, partitions backwards. broker: 4.9"""
    backwards = list(reversed(found))
    return sorted(backwards, key=lambda entry: crc32(entry.topic.name.encode() + entry.topic.topic_id))


def name_of(topic: Any, shape: Shape, view: ClusterView) -> str:
    """Return the topic's name; empty for other elements."""
    if not shape.is_topic:
        return ""
    if not shape.name:
        return str(topic)
    return view.name_of(getattr(topic, shape.name), getattr(topic, "topic_id", b""))


def list_of(message: object, name: str) -> list[Any]:
    """Return a list field; an empty list for null."""
    found: list[Any] | None = getattr(message, name)
    return [] if found is None else found


def put_refusal(answer: Message, shapes: Shapes, asked: Any, partition: int, fail: Fail, version: int) -> object:
    """Put this error into an answer, for an item of the request; returns the element."""
    entry = place_in(answer, shapes, asked)
    shape = shapes.answer
    if shape.partitions is None:
        refused = entry
    else:
        refused = _new_element(entry, shape.partitions)
        setattr(refused, shape.index, partition)
        list_of(entry, shape.partitions).append(refused)
    setattr(refused, shape.code, fail.code)
    known: dict[str, object] = dict.fromkeys(
        ("base_offset", "offset", "timestamp", "high_watermark", "low_watermark", "node_id", "port"), -1
    )
    known["records"] = b""
    if not isinstance(refused, PartitionProduceResponse) or version >= WITH_MESSAGES:
        known["error_message"] = fail.message
    for one in fields(refused):
        if one.name in known:
            setattr(refused, one.name, known[one.name])
    return refused


def place_in(answer: Message, shapes: Shapes, asked: Any) -> Any:
    """Return the element of a topic, or another item, in the answer; made if there is none."""
    request, there = shapes.request, list_of(answer, shapes.answer.entries)
    known = {shapes.answer.name: asked}
    if request.name:  # what names it in the request names it in the answer
        known = {one.name: getattr(asked, one.name) for one in fields(asked) if one.name in _NAMING}
    for entry in there:
        if all(getattr(entry, name) == value for name, value in known.items() if hasattr(entry, name)):
            return entry
    made = _new_element(answer, shapes.answer.entries)
    for name, value in known.items():
        if hasattr(made, name):
            setattr(made, name, value)
    there.append(made)
    return made


_NAMING: Final = ("name", "topic", "topic_id", "resource_type", "resource_name", "group_id")


def _new_element(owner: object, name: str) -> Any:
    """Return a new element for a list of a message, by its declared type."""
    (declared,) = (one for one in get_args(get_type_hints(type(owner))[name]) if one is not type(None))
    return (get_args(declared) or (declared,))[0]()


def _drop(items: list[Any], item: Any) -> None:
    items[:] = [one for one in items if one is not item]
