"""The wall clock, for what it is needed: record timestamps, and the age after which a broker forgets a producer.

Every duration is measured by the loop's clock; a wall clock that jumps can date a record wrongly and nothing else.
"""

from __future__ import annotations

from time import time


def wall_ms() -> int:
    """Milliseconds since 1970."""
    return int(time() * 1000)
