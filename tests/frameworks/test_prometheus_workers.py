"""docs/prometheus.md: its programs run, and a scrape of gunicorn with two workers has the sums of both."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
from functools import partial
from pathlib import Path
from typing import Any

import prometheus_client
import pytest
from fastapi.testclient import TestClient
from prometheus_client.parser import text_string_to_metric_families
from served_by_gunicorn import ROOT, Served

from aiokprod.integrations import prometheus as integration
from aiokprod.metrics import BY_LABEL, Metrics
from aiokprod.testing import MockCluster

PAGE = (ROOT / "docs" / "prometheus.md").read_text(encoding="utf-8")
SENDS = 40


def block(begins: str) -> str:
    (found,) = [
        text for text in re.findall(r"```(?:python|sh|text)\n(.*?)```", PAGE, re.DOTALL) if text.startswith(begins)
    ]
    return str(found)


class Shop(Served):
    """Gunicorn with the two workers of the page."""

    def __init__(self, folder: Path, cluster: MockCluster) -> None:
        (folder / "shop.py").write_text(block("from collections.abc").replace("write_every=1.0", "write_every=0.05"))
        (folder / "gunicorn.conf.py").write_text(block("from typing"))
        self.figures = folder / "figures"
        emptied, exported, _ = block("rm -rf /tmp/shop && mkdir /tmp/shop").splitlines()
        subprocess.run(["sh", "-c", emptied.replace("/tmp/shop", str(self.figures))], check=True)
        assert exported == "export AIOKPROD_BOOTSTRAP_SERVERS=localhost:9092 PROMETHEUS_MULTIPROC_DIR=/tmp/shop"
        given = {
            "AIOKPROD_BOOTSTRAP_SERVERS": cluster.bootstrap_servers,
            "PROMETHEUS_MULTIPROC_DIR": str(self.figures),
        }
        super().__init__(folder, "shop:app", given)
        self.until_logged("ASGI server listening", 2)

    def scraped(self) -> dict[str, float]:
        """Return the sums by name over all labels; no sample may be there twice."""
        found: dict[str, float] = {}
        seen = set()
        for family in text_string_to_metric_families(self.ask("GET", "/metrics")):
            for sample in family.samples:
                key = sample.name, tuple(sorted(sample.labels.items()))
                assert key not in seen and "pid" not in sample.labels
                seen.add(key)
                if sample.labels.get("le", "+Inf") == "+Inf":
                    found[sample.name] = found.get(sample.name, 0.0) + sample.value
        return found

    def scraped_at_last(self) -> dict[str, float]:
        """Scrape while workers start: prometheus_client cannot read a file that one has just begun, and the answer is 500."""
        try:
            return self.scraped()
        except AssertionError as error:
            if "Internal Server Error" not in str(error):
                raise
            return {}

    def workers(self) -> set[str]:
        """Return the process ids that have written figures."""
        return {path.stem.rpartition("_")[2] for path in self.figures.glob("counter_*.db")}


def test_a_scrape_of_two_workers_has_the_sums_of_both(tmp_path: Path) -> None:
    with MockCluster(brokers=1) as cluster:
        cluster.create_topic("orders")
        served = Shop(tmp_path, cluster)
        try:
            served.until(lambda: len(served.workers()) == 2)
            for number in range(SENDS):
                served.ask("POST", "/orders", b"%d" % number)
            served.until(lambda: served.scraped_at_last().get("aiokprod_records_delivered_total") == SENDS)
            found = served.scraped()
            assert found["aiokprod_topic_records_delivered_total"] == SENDS
            assert found["aiokprod_delivery_seconds_count"] == found["aiokprod_delivery_seconds_bucket"] >= 1
            assert found["aiokprod_buffer_limit_bytes"] == 2 * 33_554_432  # of both workers
            names = set(found)
            for name, kind in Metrics().kinds().items():
                suffix = {"counter": "_total", "gauge": "", "histogram": "_bucket"}[kind]
                assert integration.PREFIX + name + suffix in names
            os.kill(int(sorted(served.workers())[0]), signal.SIGTERM)  # its counters stay, its gauges go
            served.until(lambda: len(served.workers()) == 3)  # and another one takes its place
            served.until(lambda: served.scraped_at_last().get("aiokprod_buffer_limit_bytes") == 2 * 33_554_432)
            served.until(lambda: served.scraped_at_last().get("aiokprod_records_delivered_total") == SENDS)
            served.end()
        finally:
            served.kill()
            print(served.log.read_text())


def all_kinds() -> dict[str, str]:
    """Return the kinds of all metrics, also of those by topic, broker and error."""
    by_label = {f"{label}_{name}": kind for label, kinds in BY_LABEL.items() for name, kind in kinds.items()}
    return Metrics().kinds() | by_label


@pytest.mark.parametrize("line", block("aiokprod_records").splitlines())
def test_the_lines_of_the_page_are_exported(line: str) -> None:
    name = line.partition("{")[0]
    known = {f"aiokprod_{each}_total" for each, kind in all_kinds().items() if kind == "counter"}
    known |= {f"aiokprod_{each}_bucket" for each, kind in all_kinds().items() if kind == "histogram"}
    assert name in known


def test_the_alerts_of_the_page_ask_for_what_is_exported() -> None:
    known = {f"aiokprod_{name}" for name in all_kinds()}
    asked = re.findall(r"\b(aiokprod_\w+)", PAGE.split("## Alerts")[1])
    assert len(asked) > 10
    assert {re.sub(r"_(total|bucket)$", "", name) for name in asked} <= known


def test_the_first_program_of_the_page_is_exported(monkeypatch: pytest.MonkeyPatch) -> None:
    registry, ports = prometheus_client.CollectorRegistry(), list[int]()
    monkeypatch.setattr(prometheus_client, "start_http_server", ports.append)
    monkeypatch.setattr(integration.PrometheusMetrics.__init__, "__defaults__", (registry,))
    names: dict[str, Any] = {"__name__": "page"}
    exec(compile(block("import asyncio"), "docs/prometheus.md", "exec"), names)

    async def scenario() -> str:
        async with MockCluster(brokers=1) as cluster:
            cluster.create_topic("orders")
            running = asyncio.ensure_future(names["main"](cluster.bootstrap_servers, 9100))
            while not cluster.records("orders"):
                await asyncio.sleep(0.01)
            found = prometheus_client.generate_latest(registry).decode()
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            return found

    assert 'aiokprod_buffer_limit_bytes{client_id="shop"} 3.3554432e+07' in asyncio.run(scenario())
    assert ports == [9100]


def test_the_application_of_the_page_answers_a_scrape(monkeypatch: pytest.MonkeyPatch) -> None:
    registry = prometheus_client.CollectorRegistry()
    monkeypatch.setattr(prometheus_client, "generate_latest", partial(prometheus_client.generate_latest, registry))
    monkeypatch.setattr(integration.PrometheusMetrics.__init__, "__defaults__", (registry,))
    names: dict[str, Any] = {"__name__": "page"}
    with MockCluster(brokers=1) as cluster:
        monkeypatch.setenv("AIOKPROD_BOOTSTRAP_SERVERS", cluster.bootstrap_servers)
        exec(compile(block("from fastapi"), "docs/prometheus.md", "exec"), names)
        with TestClient(names["app"]) as client:
            assert client.post("/orders").json() == {"offset": 0}
            answer = client.get("/metrics", follow_redirects=False)  # as curl asks
    assert answer.status_code == 200
    assert answer.headers["content-type"] == prometheus_client.CONTENT_TYPE_LATEST
    assert 'aiokprod_records_delivered_total{client_id="shop"} 1.0\n' in answer.text
