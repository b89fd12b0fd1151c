"""The one language of faults, for `MockCluster` and for `FaultProxy`: docs/faults_language.md."""

from __future__ import annotations

from .effects import (
    Answer,
    Blackhole,
    Close,
    Corrupt,
    Delay,
    Drip,
    Drop,
    Duplicate,
    Effect,
    Fail,
    Hold,
    HugeLength,
    ItemEffect,
    Omit,
    Rechunk,
    Refuse,
    Rewrite,
    Run,
    Swallow,
    Throttle,
    Truncate,
    WrongCorrelation,
)
from .fault import Fault
from .rules import FaultRules, Rule
from .verbs import FaultVerbs

__all__ = [
    "Answer", "Blackhole", "Close", "Corrupt", "Delay", "Drip", "Drop", "Duplicate", "Effect", "Fail", "Fault",
    "FaultRules", "FaultVerbs", "Hold", "HugeLength", "ItemEffect", "Omit", "Rechunk", "Refuse", "Rewrite", "Rule", "Run",
    "Swallow", "Throttle", "Truncate", "WrongCorrelation",
]  # fmt: skip
