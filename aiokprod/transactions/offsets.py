"""Offsets of a consumer group that become part of a transaction, as several clients have them. Pure.

{(topic, partition): next offset}, or objects of other clients            -> `Offsets`       -> TxnOffsetCommit
a group id, or a consumer of aiokafka, confluent-kafka or kafka-python    -> `GroupMetadata` -> TxnOffsetCommit
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, NoReturn, Self, TypeAlias, cast

from aiokprod.config.option_checks import can_be_encoded
from aiokprod.errors import RecordTypeError
from aiokprod.transactions.machine_actions import Partition
from aiokprod.wire.messages.txn_offset_commit import TxnOffsetCommitRequestPartition, TxnOffsetCommitRequestTopic

LIBRDKAFKA: Final = b"CGMDv2:"
"""The beginning of librdkafka's bytes: then the generation (int32, of this machine), group, member, and the instance."""
NO_POSITION: Final = -1001
"""librdkafka's offset of a partition from which nothing was read: it is left out."""
LAST_OFFSET: Final = 2**63 - 1
LAST_INT32: Final = 2**31 - 1
LONGEST_TEXT: Final = 2**15 - 1
"""Bytes of a text in a request (AddOffsetsToTxn and TxnOffsetCommit have older versions with a length of 16 bits)."""
TEXT: Final = f"a str of at most {LONGEST_TEXT} bytes in UTF-8"
TOPIC_NAME: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}")  # broker: 8.6


class Offset(NamedTuple):
    """The place of a group in one partition: the offset of the record that it reads next."""

    offset: int
    metadata: str = ""
    leader_epoch: int = -1


Offsets: TypeAlias = dict[Partition, Offset]


@dataclass(frozen=True, slots=True)
class GroupMetadata:
    """The place of a consumer in its group, for `send_offsets_to_transaction`. Source: KIP-447.

    With `generation_id` and `member_id` the group's coordinator refuses offsets of a member that has lost its partitions; with
    the group id alone it takes them from any producer.
    """

    group_id: str
    """id of the group"""
    generation_id: int = -1
    """number of the rebalance that the member takes part in; -1 is none"""
    member_id: str = ""
    """name that the coordinator gave to the member"""
    group_instance_id: str | None = None
    """name of a static member"""

    def __post_init__(self) -> None:
        """Refuse what no request can carry: found later, it would end the producer.

        Raises:
            RecordTypeError: a field is of the wrong type or size.
        """
        if not _is_text(self.group_id) or not self.group_id:
            raise RecordTypeError(f"group_id {_shown(self.group_id)} is not the id of a group: {TEXT}, not empty")
        if not _is_int32(self.generation_id, least=-1):
            raise RecordTypeError(f"generation_id {_shown(self.generation_id)} is not a number from -1 to 2**31 - 1")
        if not _is_text(self.member_id):
            raise RecordTypeError(f"member_id {_shown(self.member_id)} is not the name of a member: {TEXT}")
        if self.group_instance_id is not None and not _is_text(self.group_instance_id):
            raise RecordTypeError(f"group_instance_id {_shown(self.group_instance_id)} is not {TEXT}, or None")

    @classmethod
    def of(cls, source: object) -> Self:
        """Make the metadata of a consumer, of what a consumer gives, or of a group id.

        Args:
            source: a group id; a GroupMetadata; a consumer of aiokafka, confluent-kafka or kafka-python that is in its group;
                or what `consumer_group_metadata()` of confluent-kafka gives.

        Raises:
            RecordTypeError: it is something else, or a consumer without a group.
        """
        if isinstance(source, cls):
            return source
        if isinstance(source, str):
            return cls(source) if source else _no_group(source)
        if isinstance(source, bytes):
            return cls(*_of_librdkafka(source))
        thing = cast("Any", source)
        if callable(getattr(thing, "consumer_group_metadata", None)):  # confluent-kafka's consumer
            return cls.of(thing.consumer_group_metadata())
        if isinstance(getattr(thing, "group_id", None), str):  # kafka-python's metadata, or a like object
            return cls._of_parts(
                thing.group_id,
                getattr(thing, "generation_id", -1),
                getattr(thing, "member_id", ""),
                getattr(thing, "group_instance_id", None),
            )
        coordinator = getattr(thing, "_coordinator", None)
        group_id = getattr(coordinator, "group_id", None)
        if not isinstance(group_id, str):
            return _no_group(source)
        return cls._of_coordinator(coordinator, group_id)

    @classmethod
    def _of_coordinator(cls, coordinator: Any, group_id: str) -> Self:
        """Read the coordinator inside a consumer: neither client shows the generation and the member otherwise."""
        known = getattr(coordinator, "_generation", None)  # kafka-python
        generation = getattr(coordinator, "generation", -1) if known is None else known.generation_id  # aiokafka
        member = getattr(coordinator, "member_id", "") if known is None else known.member_id
        instance = getattr(coordinator, "_group_instance_id", None)
        if instance is None:
            instance = getattr(coordinator, "group_instance_id", None)
        return cls._of_parts(group_id, generation, member, instance)

    @classmethod
    def _of_parts(cls, group_id: str, generation: object, member: object, instance: object) -> Self:
        return cls(
            group_id,
            generation if isinstance(generation, int) else -1,
            member if isinstance(member, str) else "",
            instance if isinstance(instance, str) and instance else None,
        )


def _no_group(source: object) -> NoReturn:
    raise RecordTypeError(
        "group is a GroupMetadata, the id of a group, or a consumer of aiokafka, confluent-kafka or kafka-python that has a"
        f" group; not {type(source).__name__}"
    )


def _of_librdkafka(packed: bytes) -> tuple[str, int, str, str | None]:
    """Read what librdkafka's rd_kafka_consumer_group_metadata_write has written."""
    parts = packed[len(LIBRDKAFKA) + 4 :].split(b"\0", 2)
    if not packed.startswith(LIBRDKAFKA) or len(parts) != 3 or not parts[2] or not parts[0]:
        _no_group(packed)
    generation = int.from_bytes(packed[len(LIBRDKAFKA) :][:4], sys.byteorder, signed=True)
    group, member, rest = parts
    instance = None if rest[0] else rest[1:].rstrip(b"\0")  # the first byte says whether there is none
    try:
        return group.decode(), generation, member.decode(), None if instance is None else instance.decode()
    except UnicodeDecodeError:
        _no_group(packed)


def _is_text(value: object) -> bool:
    if not isinstance(value, str) or len(value) > LONGEST_TEXT or not can_be_encoded(value):
        return False
    return len(value.encode()) <= LONGEST_TEXT


def _is_int32(value: object, *, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= LAST_INT32


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:80] + "..."


def offsets_of(offsets: object) -> Offsets:
    """Return the offsets of a call in one form.

    Args:
        offsets: a mapping from (topic, partition), or objects with `topic` and `partition`, to the next offset, or objects with
            `offset`; or objects with all three, as confluent-kafka has them.

    Raises:
        RecordTypeError: it is something else.
    """
    if isinstance(offsets, Mapping):
        pairs: Iterable[tuple[object, object]] = cast("Mapping[object, object]", offsets).items()
    elif isinstance(offsets, Iterable) and not isinstance(offsets, str | bytes):
        pairs = [(item, item) for item in cast("Iterable[object]", offsets)]
    else:
        raise RecordTypeError(f"offsets is a mapping from (topic, partition) to offsets, not {type(offsets).__name__}")
    found: Offsets = {}
    for key, value in pairs:
        place = _place_of(value)
        if place.offset != NO_POSITION:
            found[_partition_of(key)] = place
    for partition, place in found.items():
        if not 0 <= place.offset <= LAST_OFFSET:
            raise RecordTypeError(f"the offset of {partition} is {place.offset}: it must be from 0 to 2**63 - 1")
    return found


def _partition_of(key: object) -> Partition:
    topic, number = _pair(key)
    if isinstance(topic, str) and _is_topic(topic) and _is_int32(number, least=0):
        return topic, cast("int", number)
    raise RecordTypeError(f"{_shown(key)} is not the name of a topic and the number of a partition")


def _is_topic(name: str) -> bool:
    return TOPIC_NAME.fullmatch(name) is not None and name not in (".", "..")


def _pair(key: object) -> tuple[object, object]:
    parts: tuple[object, ...] = cast("tuple[object, ...]", key) if isinstance(key, tuple) else ()
    if len(parts) == 2:
        return parts[0], parts[1]
    thing = cast("Any", key)
    return getattr(thing, "topic", None), getattr(thing, "partition", None)


def _place_of(value: object) -> Offset:
    offset: object = value if isinstance(value, int) else getattr(value, "offset", None)
    if not isinstance(offset, int) or isinstance(offset, bool):
        raise RecordTypeError(f"{_shown(value)} is not an offset")
    metadata: object = getattr(value, "metadata", None)
    epoch: object = getattr(value, "leader_epoch", None)
    if isinstance(metadata, str) and not _is_text(metadata):
        raise RecordTypeError(f"the metadata of an offset, {_shown(metadata)}, are not {TEXT}")
    return Offset(
        offset,
        metadata if isinstance(metadata, str) else "",
        cast("int", epoch) if _is_int32(epoch, least=0) else -1,
    )


def offset_topics(offsets: Offsets) -> list[TxnOffsetCommitRequestTopic]:
    """Return the offsets as a request has them."""
    topics: dict[str, TxnOffsetCommitRequestTopic] = {}
    for (name, partition), place in offsets.items():
        topic = topics.setdefault(name, TxnOffsetCommitRequestTopic(name))
        topic.partitions.append(
            TxnOffsetCommitRequestPartition(partition, place.offset, place.leader_epoch, place.metadata)
        )
    return list(topics.values())
