"""What a DataFrame's plan does: for tests and benchmarks that hold the audit to its one shuffle."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def executed_plan(frame: DataFrame) -> str:
    """The physical plan as it ran, or would run; with adaptive execution the final one, once `collect` has run on it."""
    java: Any = frame._jdf
    plan = str(java.queryExecution().executedPlan().toString())
    return plan.partition("+- == Initial Plan ==")[0]


def shuffles(frame: DataFrame) -> int:
    """How often rows change their partition in it (a broadcast is no shuffle)."""
    return len(re.findall(r"(?<!Broadcast)(?<!Reused)Exchange ", executed_plan(frame)))


def aggregates(frame: DataFrame) -> set[str]:
    """The kinds of aggregates in it: HashAggregate, ObjectHashAggregate, SortAggregate."""
    return set(re.findall(r"(\w*Aggregate)\(", executed_plan(frame)))
