"""The variables by which the gate reaches into a pytest run; `plugin` says what they mean. Imports nothing."""

from __future__ import annotations

from typing import Final

SHARD: Final = "AIOKPROD_TEST_SHARD"
FIRST_OF_EACH_FILE: Final = "AIOKPROD_TEST_FIRST_OF_EACH_FILE"
FAILURES: Final = "AIOKPROD_TEST_FAILURES"
