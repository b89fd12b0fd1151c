"""The producer without a cluster; `aiokprod.testing.MemoryProducer` is its one door."""

from __future__ import annotations

from aiokprod.testing.memory.log import MemoryRecord
from aiokprod.testing.memory.producer import MemoryProducer

__all__ = ["MemoryProducer", "MemoryRecord"]
