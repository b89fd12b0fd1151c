"""docs/explain.md: its program prints what the page says, and its tables have every place, wait and obstacle."""

from __future__ import annotations

import asyncio
import dataclasses
import re
import subprocess
import sys
from enum import Enum
from pathlib import Path
from typing import Any

import pytest

from aiokprod import Producer
from aiokprod.explanation import Event, Explanation, Obstacle, ObstacleKind, Place, ProducerExplanation, WaitsFor
from aiokprod.testing import MockCluster

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "explain.md").read_text(encoding="utf-8")


def test_the_program_prints_what_the_page_says() -> None:
    program, *_ = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    (printed,) = re.findall(r"^```text\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert (ran.returncode, ran.stdout) == (0, printed), ran.stderr


def test_the_probe_tells_the_reasons() -> None:
    _, program = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    names: dict[str, Any] = {}
    exec(compile(program, "docs/explain.md", "exec"), names)

    async def scenario() -> None:
        with MockCluster(1) as cluster:
            async with Producer(cluster.bootstrap_servers) as producer:
                assert names["ready"](producer) == (200, {"state": "READY", "reasons": []})
        status, told = names["ready"](producer)
        assert (status, told["state"], [reason["kind"] for reason in told["reasons"]]) == (503, "CLOSED", ["CLOSED"])

    asyncio.run(scenario())


@pytest.mark.parametrize(("head", "kind"), [("place", Place), ("waits_for", WaitsFor), ("kind", ObstacleKind)])
def test_each_table_has_the_members_of_its_enum_in_their_order(head: str, kind: type[Enum]) -> None:
    table = PAGE.partition(f"| `{head}` | meaning |\n|---|---|\n")[2].partition("\n\n")[0]
    assert re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE) == [member.name for member in kind]


@pytest.mark.parametrize("kind", [Explanation, Event, ProducerExplanation, Obstacle])
def test_the_page_names_each_field(kind: type) -> None:
    named = set(re.findall(r"\b\w+\b", " ".join(re.findall(r"`[^`\n]+`", PAGE))))
    assert {field.name for field in dataclasses.fields(kind)} <= named
