"""Queries on a DataFrame's plan, for tests and benchmarks that check that the audit has one shuffle."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def executed_plan(frame: DataFrame) -> str:
    """Return the physical plan as it ran, or would run; with adaptive execution the final one, once `collect` has run on it."""
    java = cast(Any, frame)._jdf  # pyspark has no public way to the JVM
    plan = str(java.queryExecution().executedPlan().toString())
    return plan.partition("+- == Initial Plan ==")[0]


def shuffles(frame: DataFrame) -> int:
    """Count how often rows change their partition in the plan (a broadcast is not a shuffle)."""
    return len(re.findall(r"(?<!Broadcast)(?<!Reused)Exchange ", executed_plan(frame)))


def aggregates(frame: DataFrame) -> set[str]:
    """Return the kinds of aggregates in the plan: HashAggregate, ObjectHashAggregate, SortAggregate."""
    return set(re.findall(r"(\w*Aggregate)\(", executed_plan(frame)))
