"""What was told of each record against what is in the log, and what a run left behind.

`SendBook` keeps what was sent and told, `log_of` takes what a cluster or a reader has, `check_delivery` compares them.
The rest looks at the manners of a run: `check_rate` (storms), `Footprint` (leaks), `StallMeter` (a loop kept waiting).
"""

from __future__ import annotations

from .book import SendBook
from .delivery import Promise, check_delivery
from .history import Finding, Kind, LogRecord, Outcome, Sent, log_of
from .manners import Footprint, StallMeter, check_rate

__all__ = [
    "SendBook", "Promise", "check_delivery", "Finding", "Kind", "LogRecord", "Outcome", "Sent", "log_of", "Footprint",
    "StallMeter", "check_rate",
]  # fmt: skip
