"""`pyspark_aiokprod`, the top-level module in which Spark finds the format "aiokprod".

Spark imports every top-level module called `pyspark_*` and takes its `DefaultSource`. A module that raises hides all Python
sources of that session, so nothing happens at import, and a later failure leaves this module without a source. The build
puts this file beside the package (`.build/backend.py`).
"""

from __future__ import annotations

from typing import Any


def __getattr__(name: str) -> Any:
    if name != "DefaultSource":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        from aiokprod.spark.source import AiokprodSource
    except Exception as broken:  # an error in aiokprod or pyspark must not hide the sources of other packages
        import logging

        logging.getLogger("aiokprod.spark").warning(
            "format 'aiokprod' is not available: %s: %s", type(broken).__name__, broken
        )
        raise AttributeError(f"no DefaultSource: {broken}") from None
    return AiokprodSource
