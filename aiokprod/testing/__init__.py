"""Tests for people who send to Kafka: a producer in memory, a cluster in this process, a real one, a breaking proxy.

Everything here is imported when first asked for: the pytest plugin lives in this package and is loaded by every run of
pytest, also by those that test something else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aiokprod.testing.faults import Fault
    from aiokprod.testing.kafka_cluster import KafkaCluster
    from aiokprod.testing.memory import MemoryProducer, MemoryRecord
    from aiokprod.testing.mock import MockCluster
    from aiokprod.testing.proxy import FaultProxy

__all__ = ["MemoryProducer", "MemoryRecord", "MockCluster", "KafkaCluster", "FaultProxy", "Fault"]

_HOMES = {
    "MemoryProducer": "aiokprod.testing.memory",
    "MemoryRecord": "aiokprod.testing.memory",
    "MockCluster": "aiokprod.testing.mock",
    "KafkaCluster": "aiokprod.testing.kafka_cluster",
    "FaultProxy": "aiokprod.testing.proxy",
    "Fault": "aiokprod.testing.faults",
}


def __getattr__(name: str) -> object:
    """PEP 562: the module that has it is imported now, not with the package."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return [*globals(), *__all__]
