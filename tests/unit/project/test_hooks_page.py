"""docs/hooks.md: its program prints what the page says, and its table has every hook."""

from __future__ import annotations

import asyncio
import inspect
import re
from pathlib import Path
from typing import Any

import pytest

from aiokprod import ProducerInterceptor, Record
from aiokprod.testing import MockCluster

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "hooks.md").read_text(encoding="utf-8")


def program(text: str) -> dict[str, Any]:
    """Return the names that a block of the page defines."""
    names: dict[str, Any] = {"__name__": "hooks"}
    exec(compile(text, "docs/hooks.md", "exec"), names)
    return names


def block(kind: str, begins: str) -> str:
    (found,) = [text for text in re.findall(rf"```{kind}\n(.*?)```", PAGE, re.DOTALL) if text.startswith(begins)]
    return str(found)


def test_the_program_prints_what_the_page_says(capsys: pytest.CaptureFixture[str]) -> None:
    async def scenario() -> None:
        async with MockCluster(brokers=1) as cluster:
            cluster.create_topic("orders")
            cluster.fail_next("Produce", "NOT_LEADER_OR_FOLLOWER")
            await program(block("python", "import asyncio"))["main"](cluster.bootstrap_servers)

    asyncio.run(scenario())
    assert capsys.readouterr().out == block("text", "batch 1")


def test_the_header_of_the_first_example_is_added() -> None:
    names = program(block("python", "from collections.abc import Mapping"))
    record = names["Stamp"]().on_send(Record(value=b"v", headers=[("a", b"1")]))
    assert record.headers == [("a", b"1"), ("source", b"shop")]


def test_the_table_has_every_hook() -> None:
    hooks = {name: value for name, value in vars(ProducerInterceptor).items() if callable(value) and name[0] != "_"}
    expected = {f"{name}({', '.join(inspect.signature(hook).parameters)})" for name, hook in hooks.items()}
    assert set(re.findall(r"^\| `(\w+\([\w, ]*\))[^`]*` \|", PAGE, re.MULTILINE)) == expected
