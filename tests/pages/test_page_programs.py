"""Every program of every page is run: here against a cluster in memory, or by the test of its page that is named here."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import pytest
from page_programs import ROOT, SERVERS, Block, blocks, label, printed_after, python_pages

import aiokprod
from aiokprod.testing import MockCluster

LIMIT_S: Final = 120.0
RUN_BY: Final = {
    "README.md": "tests/unit/project/test_readme.py",
    "docs/columns.md": "tests/unit/project/test_columns_page.py",
    "docs/configuration.md": "tests/unit/project/test_configuration_page.py",
    "docs/dead_letters.md": "tests/unit/project/test_dead_letters.py",
    "docs/exactly_once.md": "tests/unit/consuming/test_exactly_once_page.py",
    "docs/explain.md": "tests/unit/project/test_explain_page.py",
    "docs/faults_language.md": "tests/unit/testing/faults/test_faults_page.py",
    "docs/frameworks.md": "tests/frameworks/test_frameworks_page.py",
    "docs/hooks.md": "tests/unit/project/test_hooks_page.py",
    "docs/prometheus.md": "tests/frameworks/test_prometheus_workers.py",
    "docs/telemetry.md": "tests/unit/project/test_telemetry_page.py",
    "docs/testing.md": "tests/frameworks/test_testing_examples.py",
    "docs/tracing.md": "tests/unit/project/test_tracing_page.py",
    "docs/transactions.md": "tests/unit/transactions/test_transactions_page.py",
    "docs/transactions_admin.md": "tests/unit/transactions/test_admin_page.py",
    "docs/tutorial.md": "tests/pages/test_tutorial.py",
}
"""Pages with a test of their own, which runs their programs and asks more of them than that they end well."""
OF_SPARK: Final = {"docs/audit.md": 3, "docs/spark.md": 9}
"""Pages with blocks that need a Spark session: how many. `tests/spark/test_spark_pages.py`, a slow test, runs them."""


SENT: Final = {
    "JSON": b'{"id":"a7","day":"2026-01-31"}',
    "pydantic": b'{"id":"a7","amount":3}',
    "msgspec": b"\x82\xa2id\xa2a7\xa6amount\x03",
    "Avro, with a schema registry": b"\x00\x00\x00\x00\x01" + b"\x04a7\x06",
    "JSON Schema, with a schema registry": b"\x00\x00\x00\x00\x01{",
    "Protobuf, with a schema registry": b"\x00\x00\x00\x00\x01" + b"\x00",
}
"""What the programs of docs/how-to/serializers.md send, by section: the beginning of it, if it has no order of its own."""


def programs() -> list[Any]:
    return [
        pytest.param(block, printed_after(block, page), id=block.name)
        for page in python_pages()
        if label(page) not in RUN_BY and label(page) not in OF_SPARK
        for block in blocks(page, "python")
    ]


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[MockCluster]:
    """Yield a cluster that programs find in their environment and at `SERVERS`."""
    for name in [name for name in os.environ if name.startswith(("AIOKPROD_", "KAFKA_"))]:
        monkeypatch.delenv(name)
    with MockCluster() as started:
        monkeypatch.setenv("AIOKPROD_BOOTSTRAP_SERVERS", started.bootstrap_servers)
        yield started


@pytest.fixture
def limit() -> Iterator[None]:
    """Interrupt a program that does not end."""

    def over(*_: object) -> None:
        raise TimeoutError(f"the program has not ended within {LIMIT_S:g} s")

    before = signal.signal(signal.SIGALRM, over)
    signal.alarm(int(LIMIT_S))
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture
def logging_as_before() -> Iterator[None]:
    """Restore the loggers that a program configures."""
    loggers = [logging.getLogger(), logging.getLogger("aiokprod"), logging.getLogger("aiokprod.cluster")]
    before = [(logger, logger.level, logger.handlers[:]) for logger in loggers]
    yield
    for logger, level, handlers in before:
        logger.setLevel(level)
        logger.handlers[:] = handlers


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let clients of a schema registry have one in memory, which confluent-kafka brings along."""
    from confluent_kafka.schema_registry import AsyncSchemaRegistryClient

    new = AsyncSchemaRegistryClient.new_client
    monkeypatch.setattr(
        AsyncSchemaRegistryClient, "new_client", staticmethod(lambda conf: new({"url": f"mock://{conf['url']}"}))
    )


def run(block: Block, servers: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Run a program as a main module; return what it prints."""
    text = block.padded().replace(SERVERS, servers)
    if "multiprocessing" in text:  # its children import the file
        (folder / "program.py").write_text(text, encoding="utf-8")
        environment = os.environ | {"PYTHONPATH": str(Path(aiokprod.__file__).parents[1])}
        command = [sys.executable, str(folder / "program.py")]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=LIMIT_S, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout
    module = ModuleType("__main__")
    monkeypatch.setitem(sys.modules, "__main__", module)  # pydantic and msgspec look up annotations there
    printed = StringIO()
    with redirect_stdout(printed):
        exec(compile(text, block.page, "exec"), module.__dict__)
    return printed.getvalue()


@pytest.mark.usefixtures("limit", "logging_as_before", "registry")
@pytest.mark.parametrize(("block", "printed"), programs())
def test_a_program_runs_and_prints_what_the_page_says(
    block: Block, printed: str | None, cluster: MockCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = run(block, cluster.bootstrap_servers, tmp_path, monkeypatch)
    if printed is not None:
        assert out == printed
    if block.page == "docs/how-to/serializers.md":
        (record,) = cluster.records("orders")
        assert (record.value or b"").startswith(SENT[block.section])


def test_every_section_about_serializers_is_compared() -> None:
    page = ROOT / "docs" / "how-to" / "serializers.md"
    assert {block.section for block in blocks(page, "python")} == SENT.keys()


def test_a_page_with_a_test_of_its_own_is_named_in_that_test() -> None:
    for page, test in RUN_BY.items():
        text = (ROOT / test).read_text(encoding="utf-8")
        assert page.rpartition("/")[2] in text, f"{test} does not name {page}"


def test_only_these_blocks_need_spark() -> None:
    marked = {label(page): len(blocks(page, "python")) for page in python_pages() if label(page) in OF_SPARK}
    assert marked == OF_SPARK


def test_programs_are_found() -> None:
    found = [param.values for param in programs()]
    assert len(found) >= 20
    assert sum(printed is not None for _, printed in found) >= 10
