"""The in-process cluster; `aiokprod.testing.MockCluster` is its one door."""

from __future__ import annotations

from aiokprod.testing.faults import Rule
from aiokprod.testing.mock.broker import MockBroker
from aiokprod.testing.mock.cluster import MockCluster
from aiokprod.testing.mock.cluster_state import RefusalError
from aiokprod.testing.mock.counters import RequestSeen
from aiokprod.testing.mock.log import StoredBatch
from aiokprod.testing.mock.stored_records import StoredRecord

__all__ = ["MockCluster", "MockBroker", "RefusalError", "RequestSeen", "Rule", "StoredBatch", "StoredRecord"]
