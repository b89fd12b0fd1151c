"""Checks of a run: the outcomes that the producer reported against the records in the log, and leaks.

`SendBook` keeps the records sent and their outcomes, `log_of` reads the log of a cluster or a reader, `check_delivery`
compares the two. `check_transactions` compares transactions with what readers of committed records see. The other checks:
`check_rate` (storms), `Footprint` (leaks), `StallMeter` (a blocked loop).
"""

from __future__ import annotations

from aiokprod.testing.checker.book import SendBook
from aiokprod.testing.checker.delivery import Promise, check_delivery
from aiokprod.testing.checker.history import Finding, Kind, LogRecord, Outcome, Sent, log_of
from aiokprod.testing.checker.manners import Footprint, StallMeter, check_rate
from aiokprod.testing.checker.transactions import TransactionRun, check_transactions

__all__ = [
    "SendBook", "Promise", "check_delivery", "Finding", "Kind", "LogRecord", "Outcome", "Sent", "log_of", "Footprint",
    "StallMeter", "check_rate", "TransactionRun", "check_transactions",
]  # fmt: skip
