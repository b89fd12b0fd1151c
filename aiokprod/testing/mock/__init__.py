"""The in-process cluster; `aiokprod.testing.MockCluster` is its one door."""

from __future__ import annotations

from aiokprod.testing.faults import Rule

from .broker import MockBroker
from .cluster import MockCluster
from .cluster_state import RefusalError
from .counters import RequestSeen
from .log import StoredBatch
from .stored_records import StoredRecord

__all__ = ["MockCluster", "MockBroker", "RefusalError", "RequestSeen", "Rule", "StoredBatch", "StoredRecord"]
