"""docs/tracing.md: its program makes the spans that the page says, and the tables have what is made."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from aiokprod.integrations import opentelemetry as integration
from aiokprod.testing import MockCluster

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs" / "tracing.md").read_text(encoding="utf-8")
SOURCE = "".join(path.read_text(encoding="utf-8") for path in Path(integration.__file__).parent.glob("*.py"))


def test_the_program_makes_two_spans(monkeypatch: pytest.MonkeyPatch) -> None:
    (text,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    names: dict[str, Any] = {"__name__": "traced"}
    exec(compile(text, "docs/tracing.md", "exec"), names)
    exporter = InMemorySpanExporter()
    provider: list[Any] = []
    monkeypatch.setattr(trace, "set_tracer_provider", provider.append)  # the process has one only
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: provider[0])

    async def scenario() -> list[str]:
        async with MockCluster(brokers=1) as cluster:
            cluster.create_topic("orders")
            await names["main"](cluster.bootstrap_servers, exporter)
            return [name for name, _ in cluster.records("orders")[0].headers]

    assert asyncio.run(scenario()) == ["traceparent"]
    spans = {span.name: span for span in exporter.get_finished_spans()}
    assert set(spans) == {"send orders", "checkout"}
    sent, request = spans["send orders"], spans["checkout"]
    assert sent.parent is not None and request.context is not None and sent.parent.span_id == request.context.span_id


def test_the_page_names_every_attribute_and_instrument() -> None:
    made = set(re.findall(r'"((?:messaging|aiokprod|error|server)\.[a-z_.]+)"', SOURCE))
    assert made == set(re.findall(r"`((?:messaging|aiokprod|error|server)\.[a-z_.]+)`", PAGE))


def test_the_page_has_every_option() -> None:
    options = set(integration.open_telemetry.__kwdefaults__ or {})
    section = PAGE.split("## Options")[1].split("\n## ")[0]
    rows = re.findall(r"^\| (`.*?) \|", section, re.MULTILINE)
    assert {name for row in rows for name in re.findall(r"`(\w+)`", row)} == options
