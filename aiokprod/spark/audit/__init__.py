"""The audit: what producers claimed against what is in the log, at any size, on Spark.

    from aiokprod.spark import audit

    verdict = audit.run(spark, "claims/", log)          # log: Spark's Kafka source, or a Parquet dump
    print(verdict.line)

`python -m aiokprod.spark.audit` and `aiokprod audit` are the same as a command.
"""

from __future__ import annotations

from aiokprod.spark.audit.findings import WRONG, Finding
from aiokprod.spark.audit.marking import claims_of, for_the_sink, identity, marked
from aiokprod.spark.audit.run import run
from aiokprod.spark.audit.sides import SchemaError
from aiokprod.spark.audit.verdict import Latencies, LateRecord, NamedRecord, Verdict

__all__ = [
    "WRONG",
    "Finding",
    "LateRecord",
    "Latencies",
    "NamedRecord",
    "SchemaError",
    "Verdict",
    "claims_of",
    "for_the_sink",
    "identity",
    "marked",
    "run",
]
