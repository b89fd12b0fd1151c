"""The producer without a cluster; `aiokprod.testing.MemoryProducer` is its one door."""

from __future__ import annotations

from .log import MemoryRecord
from .producer import MemoryProducer

__all__ = ["MemoryProducer", "MemoryRecord"]
