"""The one language of faults, for `MockCluster` and for `FaultProxy`: docs/faults_language.md."""

from __future__ import annotations

from aiokprod.testing.faults.effects import (
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
from aiokprod.testing.faults.fault import Fault
from aiokprod.testing.faults.rules import FaultRules, Rule
from aiokprod.testing.faults.verbs import FaultVerbs

__all__ = [
    "Answer", "Blackhole", "Close", "Corrupt", "Delay", "Drip", "Drop", "Duplicate", "Effect", "Fail", "Fault",
    "FaultRules", "FaultVerbs", "Hold", "HugeLength", "ItemEffect", "Omit", "Rechunk", "Refuse", "Rewrite", "Rule", "Run",
    "Swallow", "Throttle", "Truncate", "WrongCorrelation",
]  # fmt: skip
