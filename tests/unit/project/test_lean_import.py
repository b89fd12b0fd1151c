"""`from aiokprod import Producer` loads what a plain producer needs. What else there is, is loaded when it is used."""

from __future__ import annotations

import subprocess
import sys
from typing import Final

LIMIT_S: Final = 120.0
NOT_LOADED: Final = (
    "aiokprod.cli",
    "aiokprod.blocking",
    "aiokprod.claims",
    "aiokprod.cluster.dialing.authentication",
    "aiokprod.cluster.dialing.sasl",
    "aiokprod.compat",
    "aiokprod.consuming",
    "aiokprod.integrations",
    "aiokprod.pipeline.transactional",
    "aiokprod.reader",
    "aiokprod.spark",
    "aiokprod.telemetry",
    "aiokprod.testing",
    "aiokprod.transactions.coordinator",
    "aiokprod.transactions.machine",
    "aiokprod.transactions.offsets",
    "aiokprod.transactions.transactor",
    *(
        "aiokafka",
        "anyio",
        "click",
        "confluent_kafka",
        "numpy",
        "opentelemetry",
        "prometheus_client",
        "pyarrow",
        "pytest",
    ),
)
"""Modules, with all that is in them."""
MESSAGES: Final = {"api_versions", "init_producer_id", "metadata", "produce"}
"""What a plain producer sends. Each message takes a millisecond to load, of the time of every program."""


def loaded() -> list[str]:
    """Return the modules that are loaded in a fresh interpreter behind the import."""
    program = "import sys; from aiokprod import Producer; print(*sys.modules, sep='\\n')"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_the_import_of_a_producer_loads_what_a_plain_one_needs() -> None:
    modules = loaded()
    assert "aiokprod.producer" in modules
    needless = [name for name in modules if any(name == each or name.startswith(f"{each}.") for each in NOT_LOADED)]
    assert needless == []
    prefix = "aiokprod.wire.messages."
    assert {name.removeprefix(prefix) for name in modules if name.startswith(prefix)} == MESSAGES
