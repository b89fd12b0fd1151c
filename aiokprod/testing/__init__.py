"""Helpers for tests of programs that send to Kafka: a producer in memory, a cluster in this process or a real one, a proxy.

Everything here is imported when it is first used: the pytest plugin is in this package, and every run of pytest loads it,
whatever it tests.
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
    """Import the module of a name when the name is first used (PEP 562)."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return list(__all__)
