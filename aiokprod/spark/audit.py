"""The audit under the name by which Spark's users look for it: `aiokprod.audit` and its command.

`python -m aiokprod.spark.audit` is its command, as `python -m aiokprod.audit` and `aiokprod audit` are.
"""

from __future__ import annotations

from aiokprod.audit import (
    WRONG,
    Finding,
    Latencies,
    LateRecord,
    NamedRecord,
    SchemaError,
    Verdict,
    claims_of,
    files,
    for_the_sink,
    identity,
    marked,
    run,
)

__all__ = [
    "WRONG",
    "Finding",
    "LateRecord",
    "Latencies",
    "NamedRecord",
    "SchemaError",
    "Verdict",
    "claims_of",
    "files",
    "for_the_sink",
    "identity",
    "marked",
    "run",
]

if __name__ == "__main__":
    from aiokprod.audit.command import run_alone

    run_alone()
