"""Everything that is taken from aiokafka, in one place, with the types that aiokafka does not declare."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, NamedTuple

NEEDED: Final = "aiokprod.compat.aiokafka needs aiokafka 0.12 or later: pip install 'aiokprod[aiokafka]'"


def _module(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError as error:
        raise ImportError(NEEDED) from error


errors: Final[Any] = _module("aiokafka.errors")
producer_module: Final[Any] = _module("aiokafka.producer.producer")
LEFT_OUT: Final[object] = producer_module._missing
"""aiokafka's own mark for `acks`: FastStream gives it on."""

PLACES: Final = ("aiokafka", "aiokafka.producer", "aiokafka.producer.producer")
"""The modules in which aiokafka's producer is found."""

if TYPE_CHECKING:

    class TopicPartition(NamedTuple):
        """A topic and a partition."""

        topic: str
        partition: int

    class RecordMetadata(NamedTuple):
        """The place of a record in the log, as aiokafka tells it."""

        topic: str
        partition: int
        topic_partition: TopicPartition
        offset: int
        timestamp: int | None
        timestamp_type: int
        log_start_offset: int | None

    class BrokerMetadata(NamedTuple):
        """A broker."""

        nodeId: int | str  # noqa: N815 - aiokafka's name
        host: str
        port: int
        rack: str | None

    class RealProducer:
        """aiokafka's producer."""

        _PRODUCER_CLIENT_ID_SEQUENCE: int

    class DefaultPartitioner:
        """aiokafka's partitioner for producers that name none."""

        def __call__(self, key: bytes | None, all_partitions: Sequence[int], available: Sequence[int]) -> int: ...

    class BatchBuilder:
        """A batch that the program fills."""

        def __init__(
            self, batch_size: int, compression_type: int, *, key_serializer: Any = None, value_serializer: Any = None
        ) -> None: ...
        def append(self, *, timestamp: int | None, key: Any, value: Any, headers: Any = ()) -> Any: ...
        def close(self) -> None: ...
        def closed(self) -> bool: ...
        def record_count(self) -> int: ...
        def _serialize(self, key: Any, value: Any) -> tuple[Any, Any]: ...

    class AIOKafkaClient:
        """aiokafka's client."""

        _bootstrap_servers: Any
        _client_id: str

        def __init__(self, **options: Any) -> None: ...
        async def bootstrap(self) -> None: ...
        async def close(self) -> None: ...
        def force_metadata_update(self) -> Any: ...
        async def fetch_all_metadata(self) -> Any: ...
        async def ready(self, node_id: Any, **options: Any) -> bool: ...
        async def send(self, node_id: Any, request: Any, **options: Any) -> Any: ...
        async def coordinator_lookup(self, coordinator_type: Any, coordinator_key: Any) -> Any: ...

    def commit_structure_validate(offsets: Any) -> Any:
        """Check offsets of a transaction."""

else:
    BrokerMetadata = _module("aiokafka.structs").BrokerMetadata
    TopicPartition = _module("aiokafka.structs").TopicPartition
    RecordMetadata = _module("aiokafka.structs").RecordMetadata
    RealProducer = producer_module.AIOKafkaProducer
    DefaultPartitioner = _module("aiokafka.partitioner").DefaultPartitioner
    BatchBuilder = _module("aiokafka.producer.message_accumulator").BatchBuilder
    AIOKafkaClient = _module("aiokafka.client").AIOKafkaClient
    commit_structure_validate = _module("aiokafka.util").commit_structure_validate

__all__ = [
    "LEFT_OUT",
    "NEEDED",
    "PLACES",
    "AIOKafkaClient",
    "BatchBuilder",
    "BrokerMetadata",
    "DefaultPartitioner",
    "RealProducer",
    "RecordMetadata",
    "TopicPartition",
    "commit_structure_validate",
    "errors",
]
