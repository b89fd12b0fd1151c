"""Names that `aiokprod`, its errors or its serializers do not have, with what to write instead: for the text of the error."""

from __future__ import annotations

import inspect
from difflib import get_close_matches
from importlib import import_module
from typing import Final

MODULES: Final = ("aiokprod.errors", "aiokprod.serializers", "aiokprod.hooks", "aiokprod.explanation")
"""Modules whose public names are looked up."""
PLACES: Final = {
    **dict.fromkeys(("KafkaCluster", "MemoryProducer", "MockCluster", "FaultProxy"), "aiokprod.testing"),
    **dict.fromkeys(("AIOKafkaProducer", "install"), "aiokprod.compat.aiokafka"),
    **dict.fromkeys(("SchemaRegistry", "RegistryError"), "aiokprod.integrations.schema_registry"),
    "kafka_lifespan": "aiokprod.integrations.fastapi",
    "Claims": "aiokprod.claims",
}
"""Names of modules that need an extra, or take long to import."""
OF_REGISTRIES: Final = "see aiokprod.integrations.schema_registry: value_serializer(registry, schema)"
ERRORS: Final = {
    "BrokerNotAvailableError": "BootstrapError",
    "BufferError": "BufferFullError",
    "IllegalStateError": "UsageError",
    "IncompatibleBrokerVersion": "UnsupportedVersionError",
    "InvalidTopicException": "InvalidTopicError",
    "KafkaConfigurationError": "ConfigError",
    "KafkaConnectionError": "ConnectionLostError",
    "KafkaError": "AiokprodError",
    "KafkaException": "AiokprodError",
    "KafkaTimeoutError": "DeliveryTimeoutError",
    "KafkaUnavailableError": "BootstrapError",
    "KeySerializationError": "SerializationError",
    "MessageSizeTooLargeError": "RecordTooLargeError",
    "NoBrokersAvailable": "BootstrapError",
    "OutOfOrderSequenceNumber": "IdentityLostError",
    "ProduceError": "DeliveryError",
    "ProducerClosed": "ProducerClosedError",
    "ProducerFenced": "ProducerFencedError",
    "QueueFullError": "BufferFullError",
    "RequestTimedOutError": "RequestTimeoutError",
    "TopicAuthorizationFailedError": "TopicAuthorizationError",
    "UnknownTopicOrPartitionError": "UnknownTopicError",
    "ValueSerializationError": "SerializationError",
}
"""Errors of other clients, with the nearest of ours."""
OTHERS: Final = {
    **dict.fromkeys(("KafkaProducer", "AIOProducer"), "the producer is aiokprod.Producer"),
    **dict.fromkeys(
        ("Consumer", "AIOKafkaConsumer", "KafkaConsumer"),
        "aiokprod only produces; consume with aiokafka or confluent-kafka (docs/exactly_once.md)",
    ),
    **dict.fromkeys(
        (
            "AvroSerializer",
            "AvroSerDe",
            "JSONSchemaSerializer",
            "KafkaAvroSerializer",
            "ProtobufSerializer",
            "SchemaRegistryClient",
        ),
        OF_REGISTRIES,
    ),
    **dict.fromkeys(
        ("ByteArraySerializer", "BytesSerializer", "NoOpSerializer"), "bytes are sent as they are, without a serializer"
    ),
    **dict.fromkeys(
        ("DoubleSerializer", "IntegerSerializer"),
        "a serializer is any function, as lambda number: struct.pack('>i', number)",
    ),
    **dict.fromkeys(
        ("Deserializer", "JsonDeserializer", "StringDeserializer"), "aiokprod only produces: consumers deserialize"
    ),
    **{theirs: f"the nearest error is `from aiokprod.errors import {ours}`" for theirs, ours in ERRORS.items()},
}
IMPORTING: Final = "importlib._bootstrap"
LIKENESS: Final = 0.8
"""of a misspelt name, as `difflib` counts it"""


def refusal(module: str, name: str) -> ImportError | AttributeError:
    """Return the error of a name that a module does not have, to be raised by its `__getattr__`.

    Args:
        module: such as "aiokprod.errors".
        name: that was looked for.
    """
    # An import of a name makes an error of its own, without our words, of an AttributeError.
    advice = advice_of(name)
    if advice and is_imported():
        return ImportError(f"cannot import name {name!r} from {module!r}: {advice}", name=module)
    return AttributeError(f"module {module!r} has no attribute {name!r}{advice and ': '}{advice}")


def advice_of(name: str) -> str:
    """Return what to write instead of this name; empty if nothing is known of it."""
    if name in OTHERS:
        return OTHERS[name]
    if name.startswith("_"):
        return ""
    found = PLACES.get(name) or _names().get(name)
    if found:
        return f"write `from {found} import {name}`"
    names = {**_names(), **PLACES}
    lower = {each.lower(): each for each in names}
    near = next((lower[each] for each in get_close_matches(name.lower(), lower, 1, LIKENESS)), None)
    return f"did you mean `from {names[near]} import {near}`?" if near else ""


def _names() -> dict[str, str]:
    """Return the public names of our modules, each with its module."""
    found: dict[str, str] = dict.fromkeys(import_module("aiokprod").__all__, "aiokprod")
    for module in MODULES:
        for name, value in vars(import_module(module)).items():
            if not name.startswith("_") and getattr(value, "__module__", None) == module:
                found[name] = module
    return found


def is_imported() -> bool:
    """Return True if the `__getattr__` that has called `refusal` was called by an import of the name."""
    import opcode

    frame = inspect.currentframe()
    for _ in range(3):  # this function, `refusal` and `__getattr__`
        frame = None if frame is None else frame.f_back
    if frame is None:
        return False
    # The import system looks for a name of a package, the program itself for a name of another module.
    code = frame.f_code
    return IMPORTING in code.co_filename or opcode.opname[code.co_code[frame.f_lasti]] == "IMPORT_FROM"
