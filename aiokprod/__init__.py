"""An asyncio-native Apache Kafka producer. Each record is written once, in order, and has an awaitable outcome.

    from aiokprod import Producer

    async with Producer("localhost:9092") as producer:
        metadata = await producer.send("orders", b"value", key=b"key")

Producer            sends records; ProducerConfig holds its options; OAuthToken is what a provider of tokens returns;
                    Partitioner: the type of a function that chooses partitions
Delivery            the outcome of one record: RecordMetadata, or an AiokprodError
send_many           many records at once: Record in; SendReport, or a SendManyError, out
create_batch        a RecordBatch, to fill, and to send to one partition as it is
send_columns        many records out of buffers: BytesColumn, IntColumn, HeadersColumn in; ColumnsReport,
                    or a SendColumnsError, out
errors              all errors; Persistence says whether a failed record may be in the log
ProducerInterceptor the base class of hooks that see each record
Health, CloseReport the state of a producer, and the records that close() could not deliver; PurgeReport: of purge()
Explanation         where a record is and what it waits for; ProducerExplanation: why deliveries are slow
Transaction         records and offsets that become visible together: TransactionOutcome says whether they did;
                    GroupMetadata names the consumer whose offsets are part of it; end_transaction ends a
                    PreparedTransaction from another process
exactly_once        reads batches of a consumer, and commits each with the records that are made of it
Reader              reads records back, for tests and tools

Modules with more: aiokprod.blocking (a producer for programs without asyncio), aiokprod.serializers, aiokprod.testing (a
producer in memory, a mock cluster, a real one), aiokprod.integrations (web frameworks, OpenTelemetry, Prometheus),
aiokprod.claims and aiokprod.audit (what was sent against what is in the log).
"""

from __future__ import annotations

import os

# As type checkers read it. Each import here, as that of `typing`, would come before a command sees Ctrl-C.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    compiled: bool
    from aiokprod import errors as errors
    from aiokprod.config import OAuthToken as OAuthToken
    from aiokprod.config import Partitioner as Partitioner
    from aiokprod.config import ProducerConfig as ProducerConfig
    from aiokprod.consuming.exactly_once import exactly_once as exactly_once
    from aiokprod.delivery_type import Delivery as Delivery
    from aiokprod.errors import AiokprodError as AiokprodError
    from aiokprod.errors import BufferFullError as BufferFullError
    from aiokprod.errors import ColumnsPartition as ColumnsPartition
    from aiokprod.errors import ColumnsPlacement as ColumnsPlacement
    from aiokprod.errors import ColumnsReport as ColumnsReport
    from aiokprod.errors import DeliveryError as DeliveryError
    from aiokprod.errors import SendColumnsError as SendColumnsError
    from aiokprod.errors import SendManyError as SendManyError
    from aiokprod.errors import SendReport as SendReport
    from aiokprod.explanation import Explanation as Explanation
    from aiokprod.explanation import ProducerExplanation as ProducerExplanation
    from aiokprod.hooks import ProducerInterceptor as ProducerInterceptor
    from aiokprod.model import CloseReport as CloseReport
    from aiokprod.model import Health as Health
    from aiokprod.model import InTransaction as InTransaction
    from aiokprod.model import Persistence as Persistence
    from aiokprod.model import ProducerState as ProducerState
    from aiokprod.model import PurgeReport as PurgeReport
    from aiokprod.model import Record as Record
    from aiokprod.model import TimestampType as TimestampType
    from aiokprod.model import TransactionOutcome as TransactionOutcome
    from aiokprod.pipeline.sending.record_batch import RecordBatch as RecordBatch
    from aiokprod.producer import Producer as Producer
    from aiokprod.reader import Reader as Reader
    from aiokprod.record_metadata import RecordMetadata as RecordMetadata
    from aiokprod.records.columns import BytesColumn as BytesColumn
    from aiokprod.records.columns import HeadersColumn as HeadersColumn
    from aiokprod.records.columns import IntColumn as IntColumn
    from aiokprod.transactions.end_transaction import end_transaction as end_transaction
    from aiokprod.transactions.offsets import GroupMetadata as GroupMetadata
    from aiokprod.transactions.prepared import PreparedPartition as PreparedPartition
    from aiokprod.transactions.prepared import PreparedTransaction as PreparedTransaction
    from aiokprod.transactions.transaction import Transaction as Transaction
    from aiokprod.version import __version__ as __version__

if os.environ.get("AIOKPROD_PURE", "") not in ("", "0"):
    from aiokprod.forms import use_sources

    use_sources()

_WHERE = {
    "__version__": "version",
    "Producer": "producer",
    "ProducerConfig": "config",
    "OAuthToken": "config",
    "Partitioner": "config",
    "Delivery": "pipeline.delivery.delivery",
    "RecordMetadata": "record_metadata",
    "Record": "model",
    "RecordBatch": "pipeline.sending.record_batch",
    "InTransaction": "model",
    "Persistence": "model",
    "TimestampType": "model",
    "TransactionOutcome": "model",
    "Transaction": "transactions.transaction",
    "GroupMetadata": "transactions.offsets",
    "PreparedPartition": "transactions.prepared",
    "PreparedTransaction": "transactions.prepared",
    "end_transaction": "transactions.end_transaction",
    "SendReport": "errors",
    "CloseReport": "model",
    "Health": "model",
    "Explanation": "explanation",
    "ProducerExplanation": "explanation",
    "ProducerState": "model",
    "PurgeReport": "model",
    "ProducerInterceptor": "hooks",
    "BytesColumn": "records.columns",
    "HeadersColumn": "records.columns",
    "IntColumn": "records.columns",
    "ColumnsReport": "errors",
    "ColumnsPartition": "errors",
    "ColumnsPlacement": "errors",
    "SendColumnsError": "errors",
    "AiokprodError": "errors",
    "BufferFullError": "errors",
    "DeliveryError": "errors",
    "SendManyError": "errors",
    "Reader": "reader",
    "exactly_once": "consuming.exactly_once",
}
__all__ = [
    "AiokprodError",
    "BufferFullError",
    "BytesColumn",
    "CloseReport",
    "ColumnsPartition",
    "ColumnsPlacement",
    "ColumnsReport",
    "Delivery",
    "DeliveryError",
    "Explanation",
    "GroupMetadata",
    "HeadersColumn",
    "Health",
    "InTransaction",
    "IntColumn",
    "OAuthToken",
    "Partitioner",
    "Persistence",
    "PreparedPartition",
    "PreparedTransaction",
    "Producer",
    "ProducerConfig",
    "ProducerExplanation",
    "ProducerInterceptor",
    "ProducerState",
    "PurgeReport",
    "Reader",
    "Record",
    "RecordBatch",
    "RecordMetadata",
    "SendColumnsError",
    "SendManyError",
    "SendReport",
    "TimestampType",
    "Transaction",
    "TransactionOutcome",
    "compiled",
    "end_transaction",
    "errors",
    "exactly_once",
]


def __getattr__(name: str) -> Any:
    # Lazy (PEP 562): the pytest plugin is imported in every test run wherever the package is installed.
    from importlib import import_module

    if name == "errors":
        return import_module("aiokprod.errors")
    if name == "compiled":
        return import_module("aiokprod.forms").is_compiled()
    if name in _WHERE:
        return getattr(import_module(f"aiokprod.{_WHERE[name]}"), name)
    from importlib.util import find_spec

    if name.islower() and find_spec(f"aiokprod.{name}") is not None:
        raise AttributeError(name)  # `from aiokprod import producer` asks here first, and imports the module then
    from aiokprod.elsewhere import refusal

    raise refusal("aiokprod", name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
