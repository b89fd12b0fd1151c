"""aiokprod: an asyncio-native Apache Kafka producer. Every record once, in order, fast, with an answer for each.

from aiokprod import Producer

async with Producer("localhost:9092") as producer:
    metadata = await producer.send("orders", b"value", key=b"key")
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    compiled: bool
    from aiokprod import errors as errors
    from aiokprod.config import ProducerConfig as ProducerConfig
    from aiokprod.delivery_type import Delivery as Delivery
    from aiokprod.errors import SendColumnsError as SendColumnsError
    from aiokprod.hooks import ProducerInterceptor as ProducerInterceptor
    from aiokprod.model import CloseReport as CloseReport
    from aiokprod.model import ColumnsPartition as ColumnsPartition
    from aiokprod.model import ColumnsPlacement as ColumnsPlacement
    from aiokprod.model import ColumnsReport as ColumnsReport
    from aiokprod.model import Health as Health
    from aiokprod.model import Persistence as Persistence
    from aiokprod.model import ProducerState as ProducerState
    from aiokprod.model import Record as Record
    from aiokprod.model import SendReport as SendReport
    from aiokprod.model import TimestampType as TimestampType
    from aiokprod.producer import Producer as Producer
    from aiokprod.record_metadata import RecordMetadata as RecordMetadata
    from aiokprod.records.columns import BytesColumn as BytesColumn
    from aiokprod.records.columns import HeadersColumn as HeadersColumn
    from aiokprod.records.columns import IntColumn as IntColumn

if os.environ.get("AIOKPROD_PURE", "") not in ("", "0"):
    import_module("aiokprod.forms").use_sources()
__version__ = "0.1.0"

_WHERE = {
    "Producer": "producer",
    "ProducerConfig": "config",
    "Delivery": "pipeline.delivery",
    "RecordMetadata": "record_metadata",
    "Record": "model",
    "Persistence": "model",
    "TimestampType": "model",
    "SendReport": "model",
    "CloseReport": "model",
    "Health": "model",
    "ProducerState": "model",
    "ProducerInterceptor": "hooks",
    "BytesColumn": "records.columns",
    "HeadersColumn": "records.columns",
    "IntColumn": "records.columns",
    "ColumnsReport": "model",
    "ColumnsPartition": "model",
    "ColumnsPlacement": "model",
    "SendColumnsError": "errors",
}
__all__ = [
    "BytesColumn",
    "CloseReport",
    "ColumnsPartition",
    "ColumnsPlacement",
    "ColumnsReport",
    "Delivery",
    "HeadersColumn",
    "Health",
    "IntColumn",
    "Persistence",
    "Producer",
    "ProducerConfig",
    "ProducerInterceptor",
    "ProducerState",
    "Record",
    "RecordMetadata",
    "SendColumnsError",
    "SendReport",
    "TimestampType",
    "compiled",
    "errors",
]


def __getattr__(name: str) -> Any:
    # Lazy (PEP 562): the pytest plugin is imported in every test run wherever the package is installed.
    if name == "errors":
        return import_module("aiokprod.errors")
    if name == "compiled":
        return import_module("aiokprod.forms").is_compiled()
    if name in _WHERE:
        return getattr(import_module(f"aiokprod.{_WHERE[name]}"), name)
    raise AttributeError(f"module 'aiokprod' has no attribute {name!r}")
