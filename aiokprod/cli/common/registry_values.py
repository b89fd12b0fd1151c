"""`RegistryValues`: keys and values that a schema registry's serializer has written, as JSON.

What cannot be read stays bytes, and a line of standard error says why; after some of them, one line counts the rest.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any, Final, cast

import click

from aiokprod.cli.common.running import tell
from aiokprod.cli.common.texts import printable_json
from aiokprod.errors import AiokprodError, ConfigError, SerializationError
from aiokprod.records.decoder import DecodedRecord

TOLD: Final = 5
"""records of which a line says why they stay bytes"""
MAGIC: Final = 0


class _RegistryUnansweredError(AiokprodError):
    """The registry does not answer, or refuses the user: no record could be read."""

    advice = "Correct --registry, or leave it out to see bytes."


class RegistryValues:
    """Reads keys and values with a schema registry.

    Args:
        url: of the registry.

    Raises:
        click.UsageError: the URL is none, or the packages are missing.
    """

    def __init__(self, url: str) -> None:
        try:
            from aiokprod.integrations.schema_registry import RegistryError, SchemaRegistry
        except ModuleNotFoundError as missing:
            raise click.UsageError(str(missing)) from None
        try:
            self._registry = SchemaRegistry(url)
        except ConfigError as wrong:
            raise click.UsageError(f"--registry: {wrong.message}") from None
        self._error = RegistryError
        self._failed = 0
        self._unknown: set[bytes] = set()

    async def fields(self, topic: str, partition: int, record: DecodedRecord) -> Mapping[str, Any]:
        """Return the "key" and "value" of a record, as far as they can be read.

        Args:
            topic: topic name.
            partition: partition number.
            record: as it was read.

        Raises:
            _RegistryUnansweredError: the registry does not answer, or refuses.
        """
        found: dict[str, Any] = {}
        value = record.value
        if value is not None:
            try:
                found["value"] = await self._decode(topic, value, record, False)
            except SerializationError as error:
                self._failed += 1
                if self._failed <= TOLD:
                    tell(f"{topic}-{partition}@{record.offset} stays bytes: {error.message}")
        key = record.key  # often written by something else: a number may begin with zeros, too
        named = any(name == "__key_schema_id" for name, _ in record.headers)
        if key is not None and (named or (len(key) > 5 and key[0] == MAGIC and key[:5] not in self._unknown)):
            try:
                found["key"] = await self._decode(topic, key, record, True)
            except SerializationError:
                self._unknown.add(key[:5])
        return found

    async def _decode(self, topic: str, data: bytes, record: DecodedRecord, is_key: bool) -> Any:
        try:
            return await self._registry.decode(data, topic=topic, is_key=is_key, headers=record.headers)
        except self._error as error:
            if error.is_of_data:
                raise
            raise _RegistryUnansweredError(error.message) from None

    async def close(self) -> None:
        """Close its connections, and count what stayed bytes."""
        await self._registry.close()
        if self._failed > TOLD:
            tell(f"{self._failed:,} values stay bytes")


def text_of(value: Any) -> str:
    """Return a value as one line of JSON, which does not steer a terminal.

    Args:
        value: as the registry's schemas have it; a date as ISO 8601, a decimal as its digits, bytes as `read --json` has them.
    """
    return printable_json(json.dumps(plain(value), ensure_ascii=False))


def plain(value: Any) -> Any:
    """Return a value in JSON's types.

    Args:
        value: of Avro, JSON Schema or Protobuf.
    """
    if isinstance(value, Mapping):
        return {str(name): plain(each) for name, each in cast(Any, value).items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in cast("list[Any]", value)]
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return {"base64": base64.b64encode(value).decode()}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    moment = getattr(value, "isoformat", None)
    return str(value) if moment is None else moment()
