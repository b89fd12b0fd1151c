"""A schema registry: serializers for Avro, JSON Schema and Protobuf, over the asynchronous client of confluent-kafka.

    registry = SchemaRegistry("http://localhost:8081")
    Producer("localhost:9092", value_serializer=value_serializer(registry, SCHEMA))

The registry is asked for the first record of a topic only. `SchemaRegistry.decode` reads what such serializers have written.
"""

from aiokprod.integrations.schema_registry.registry import RegistryError, SchemaRegistry
from aiokprod.integrations.schema_registry.serializers import RegistrySerializer, key_serializer, value_serializer

__all__ = ["SchemaRegistry", "value_serializer", "key_serializer", "RegistrySerializer", "RegistryError"]
