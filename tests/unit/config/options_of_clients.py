"""The table of every option of four clients, `options_of_clients.txt`: how it is read, and what becomes of a line of it."""

from __future__ import annotations

import ast
import logging
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from aiokprod import ProducerInterceptor
from aiokprod.config import ProducerConfig
from aiokprod.config.foreign_names import CODEC_LEVELS, JAAS, RENAMED, dotted

TABLE = Path(__file__).with_suffix(".txt")
ABOUT_ALL = ("keys go to other partitions", "idempotence is off")
"""warnings that are not about an option without a meaning"""


def _of(module: str, name: str) -> type:
    """Return a class as another package has it; importing the package is not needed for its name."""
    return type(name, (), {"__module__": module, "__call__": lambda self, key, every, available: every[0]})


OBJECTS: dict[str, Any] = {
    "$missing": object(),
    "$inf": float("inf"),
    "$function": lambda error: None,
    "$logger": logging.getLogger("theirs"),
    "$serializer": lambda data: data,
    "$partitioner": lambda key, every, available: every[0],
    "$aiokafka": _of("aiokafka.partitioner", "DefaultPartitioner")(),
    "$kafka-python": _of("kafka.partitioner.default", "DefaultPartitioner")(),
    "$selector": _of("selectors", "EpollSelector"),
    "$client": _of("kafka.net.compat", "KafkaNetClient"),
    "$provider": lambda: "token",
    "$context": ssl.create_default_context(),
    "$interceptors": [ProducerInterceptor()],
    "$loop": "a loop",
}
"""values of the table that are no literals"""


class Line(NamedTuple):
    """One line: an option with a value, what becomes of it, and the options that it needs beside it."""

    client: str
    option: str
    value: Any
    is_default: bool
    fate: str
    beside: dict[str, Any]

    def __str__(self) -> str:
        return f"{self.client} {self.option}={self.value!r}"

    @property
    def ours(self) -> str | None:
        """Our name of the option; None if there is none."""
        return our_name(self.option)


def our_name(option: str) -> str | None:
    """Return our name of another client's option; None if there is none."""
    if dotted(option) == JAAS:
        return "sasl_username"
    if dotted(option) in CODEC_LEVELS:
        return "compression_level"
    name = RENAMED.get(dotted(option), option.replace(".", "_"))
    is_a_class = "." in option and name.endswith("_serializer")
    return name if name in ProducerConfig.names() and not is_a_class else None


def value_of(text: str) -> Any:
    """Return the value that is written in the table."""
    return OBJECTS[text] if text.startswith("$") else ast.literal_eval(text)


def lines() -> list[Line]:
    """Read the table."""
    found: list[Line] = []
    for text in TABLE.read_text(encoding="utf-8").splitlines():
        if text and not text.startswith("#"):
            client, option, value, fate, beside = (cell.strip() for cell in text.split(" | "))
            pairs = [] if beside == "-" else [pair.split("=", 1) for pair in beside.split(", ")]
            needed = {name: value_of(needed) for name, needed in pairs}
            is_default = value.endswith(" (default)")
            value = value.removesuffix(" (default)")
            found.append(Line(client, option, value_of(value), is_default, fate, needed))
    return found


@contextmanager
def warnings_of_config() -> Iterator[list[str]]:
    """Collect the warnings that are logged about options."""
    told: list[str] = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: told.append(record.getMessage())  # type: ignore[method-assign]
    logger = logging.getLogger("aiokprod.config")
    logger.addHandler(handler)
    try:
        yield told
    finally:
        logger.removeHandler(handler)


def mapping_of(line: Line, value: Any) -> dict[str, Any]:
    """Return a mapping with the option, what it needs, and a server."""
    servers = {} if line.ours == "bootstrap_servers" else {"bootstrap_servers": "kafka:9092"}
    return {**servers, **line.beside, line.option: value}


def fate_of(line: Line, value: Any) -> tuple[str, list[str]]:
    """Return what becomes of the line, as the table has it, and the warnings; raises the error of one that is refused."""
    with warnings_of_config() as told:
        config = ProducerConfig.from_mapping(mapping_of(line, value))
    warnings = [each for each in told if not each.startswith(ABOUT_ALL)]
    if warnings:
        return "warned", warnings
    ours = line.ours
    given = {text.partition(" = ")[0] for text in config.explain() if text.endswith("(given)")}
    if ours is None or ours not in given or (ours == "client_id" and not value):
        return "accepted", []
    found = getattr(config, ours)
    is_literal = isinstance(found, str | int | float)
    return (f"taken {ours}={found!r}" if is_literal else f"taken {ours}"), []
