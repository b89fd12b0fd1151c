"""The audit: the claims of producers against the content of the log, at any size, on Spark.

    from aiokprod import audit

    verdict = audit.run(spark, "claims/", log)          # log: Spark's Kafka source, or a Parquet dump
    print(verdict.line)

`python -m aiokprod.audit` and `aiokprod audit` run the same audit as a command.
"""

from __future__ import annotations

from aiokprod.audit.findings import WRONG, Finding
from aiokprod.audit.marking import claims_of, for_the_sink, identity, marked
from aiokprod.audit.run import run
from aiokprod.audit.sides import SchemaError
from aiokprod.audit.verdict import Latencies, LateRecord, NamedRecord, Verdict

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
