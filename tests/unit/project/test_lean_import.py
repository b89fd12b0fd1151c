"""`from aiokprod import Producer` loads what a plain producer needs until its start, and the start loads the rest of it.

Counted, not timed: a module takes a third of a millisecond of the time of every program, and a dataclass as much again.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from typing import Final

import pytest

from aiokprod.testing import MockCluster

LIMIT_S: Final = 120.0
NOT_LOADED: Final = (
    "aiokprod.cli",
    "aiokprod.blocking",
    "aiokprod.claims",
    "aiokprod.cluster.client",
    "aiokprod.cluster.connection",
    "aiokprod.cluster.dialing",
    "aiokprod.cluster.metadata",
    "aiokprod.compat",
    "aiokprod.config.foreign_names",
    "aiokprod.consuming",
    "aiokprod.explanation",
    "aiokprod.hooks",
    "aiokprod.integrations",
    "aiokprod.pipeline.broker_backend",
    "aiokprod.pipeline.transactional",
    "aiokprod.reader",
    "aiokprod.records.columns",
    "aiokprod.spark",
    "aiokprod.telemetry",
    "aiokprod.testing",
    "aiokprod.transactions",
    "aiokprod.wire.messages",
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
    *("difflib", "ipaddress", "json", "pathlib", "pickle", "shutil", "tempfile", "urllib"),  # beside what asyncio loads
)
"""Modules, with all that is in them."""
NEVER_LOADED: Final = (
    "aiokprod.cluster.dialing.authentication",
    "aiokprod.cluster.dialing.sasl",
    "aiokprod.cluster.dialing.tls",
    "aiokprod.cluster.dialing.tokens",
    "aiokprod.explanation",
    "aiokprod.pipeline.transactional",
    "aiokprod.transactions.coordinator",
    "aiokprod.transactions.machine",
    "aiokprod.transactions.offsets",
    "aiokprod.transactions.transactor",
)
"""Modules that a plain producer does not load at its start either."""
MESSAGES: Final = {
    "api_versions", "get_telemetry_subscriptions", "init_producer_id", "metadata", "produce", "push_telemetry",
}  # fmt: skip
"""What a plain producer sends; telemetry as the cluster takes it."""

COUNT_DATACLASSES: Final = """
import dataclasses
made = []
process = dataclasses._process_class
def count(cls, *arguments, **options):
    made.append(f"{cls.__module__}.{cls.__qualname__}")
    return process(cls, *arguments, **options)
dataclasses._process_class = count
"""
MODULES: Final = 97
DATACLASSES: Final = 12
"""What the import takes today. A number that falls is good news: lower it here. One that grows takes time of every program
that imports a producer: load it with what uses it, or say in the change why each program needs it.
"""


def run(program: str) -> list[str]:
    """Run a program in a fresh interpreter; return its lines."""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def those_of(names: tuple[str, ...], modules: list[str]) -> list[str]:
    return [name for name in modules if any(name == each or name.startswith(f"{each}.") for each in names)]


def test_the_import_of_a_producer_loads_what_a_plain_one_needs() -> None:
    before = "import sys, asyncio, logging; before = set(sys.modules); "
    modules = run(f"{before}from aiokprod import Producer; print(*(set(sys.modules) - before), sep='\\n')")
    assert "aiokprod.producer" in modules
    assert those_of(NOT_LOADED, modules) == []


@pytest.mark.pure("the compiled form has a module for each group of its own")
def test_the_import_does_not_grow() -> None:
    modules = run("import sys; from aiokprod import Producer; print(*sys.modules, sep='\\n')")
    assert len(those_of(("aiokprod",), modules)) == MODULES, "see what MODULES says"
    made = run(f"{COUNT_DATACLASSES}\nfrom aiokprod import Producer\nprint(*made, sep='\\n')")
    assert len(those_of(("aiokprod",), made)) == DATACLASSES, f"see what DATACLASSES says: {made}"


FIRST_RECORD: Final = """
import asyncio, sys
from aiokprod import Producer

async def main():
    async with Producer(sys.argv[1]) as producer:
        started = set(sys.modules)
        await producer.send("orders", b"value", key=b"key")
        sent = set(sys.modules)
    print(*started, sep=" ")
    print(*(sent - started), sep=" ")

asyncio.run(main())
"""


async def run_beside_a_cluster(program: str) -> list[str]:
    """Run a program in a fresh interpreter, with the address of a cluster that is none of its modules; return its lines."""
    async with MockCluster() as cluster, asyncio.timeout(LIMIT_S):
        cluster.create_topic("orders")
        child = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", program, cluster.bootstrap_servers),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, err = await child.communicate()
        assert child.returncode == 0, err.decode()
        return out.decode().splitlines()


def test_all_that_a_record_needs_is_loaded_at_the_start() -> None:
    started, late = asyncio.run(run_beside_a_cluster(FIRST_RECORD))
    assert late == "", "the first record waits for these"
    modules = started.split()
    assert those_of(NEVER_LOADED, modules) == []
    prefix = "aiokprod.wire.messages."
    assert {name.removeprefix(prefix) for name in modules if name.startswith(prefix)} == MESSAGES
