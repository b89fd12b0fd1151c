"""The choice of the encoder of columns: the one with numpy and pyarrow where both are, else the plain one.

The packages take a third of a second to import: that is done once, in a thread, when columns are first sent.
"""

from __future__ import annotations

import asyncio
import sys
from importlib import import_module

from aiokprod.records.column_rows import Encoder, PlainEncoder

KNOWN: list[Encoder] = []
"""the one, once it was looked for"""


async def best_encoder() -> Encoder:
    """Return the fastest encoder that can be had here."""
    if not KNOWN:
        is_imported = "numpy" in sys.modules and "pyarrow.compute" in sys.modules
        KNOWN.append(_find() if is_imported else await asyncio.to_thread(_find))
    return KNOWN[0]


def _find() -> Encoder:
    try:
        vectorised = import_module("aiokprod.records.vectorised")
    except ImportError:
        return PlainEncoder()
    encoder: Encoder = vectorised.VectorEncoder()
    return encoder
