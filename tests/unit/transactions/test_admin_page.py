"""docs/transactions_admin.md: its program and its commands run."""

from __future__ import annotations

import asyncio
import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from aiokprod import Producer
from aiokprod.cli.transactions import transactions
from aiokprod.testing import MockCluster
from aiokprod.transactions.admin import TransactionAdmin

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "transactions_admin.md").read_text(encoding="utf-8")
(PROGRAM,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
COMMANDS = [line for block in re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL) for line in block.splitlines()]


def leave_open(cluster: MockCluster) -> None:
    async def leave() -> None:
        async with Producer(cluster.bootstrap_servers, transactional_id="orders-7") as producer:
            producer.begin_transaction()
            await producer.send("orders", b"v", partition=0)
            await producer.prepare_transaction()

    asyncio.run(leave())


def test_the_program_lists_describes_and_aborts(capsys: pytest.CaptureFixture[str]) -> None:
    with MockCluster(1, auto_create_topics=False) as cluster:
        cluster.create_topic("orders", partitions=1)
        leave_open(cluster)
        program = PROGRAM.replace("localhost:9092", cluster.bootstrap_servers)
        exec(compile(program, "docs/transactions_admin.md", "exec"), {"__name__": "page"})
        lines = capsys.readouterr().out.splitlines()
        assert lines == ["orders-7 Ongoing (('orders', 0),)", "TransactionOutcome.ABORTED"]


def test_the_commands_run() -> None:
    with MockCluster(1, auto_create_topics=False) as cluster:
        cluster.create_topic("orders", partitions=1)
        leave_open(cluster)
        statuses = []
        for command in COMMANDS:
            words = shlex.split(command.replace("localhost:9092", cluster.bootstrap_servers))
            assert words[:2] == ["aiokprod", "transactions"]
            statuses.append(CliRunner().invoke(transactions, words[2:]).exit_code)
        assert statuses == [0, 0, 0, 0, 2], "the last one finds nothing that hangs at that place"


def test_the_calls_and_commands_of_the_page_are_all_there_are() -> None:
    calls = set(re.findall(r"^\| `(\w+)\(", PAGE, re.MULTILINE))
    public = {name for name in vars(TransactionAdmin) if not name.startswith("_")} - {"start", "close"}
    assert calls == public
    assert {command.split()[2] for command in COMMANDS} == set(transactions.commands)
