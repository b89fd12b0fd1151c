"""docs/how-to/deployment.md: its application answers the probes of its deployment, and its times fit into each other."""

from __future__ import annotations

from typing import Any, Final

import pytest
import yaml
from fastapi.testclient import TestClient
from page_programs import ROOT, blocks

from aiokprod.testing import MockCluster

PAGE: Final = ROOT / "docs" / "how-to" / "deployment.md"


def deployment() -> dict[str, Any]:
    """Return the specification of the pod."""
    (block,) = blocks(PAGE, "yaml")
    loaded: dict[str, Any] = yaml.safe_load(block.text)["spec"]["template"]["spec"]
    return loaded


def application() -> Any:
    """Return the application of the page, with its options from the environment."""
    (block,) = [block for block in blocks(PAGE, "python") if block.marks.get("file") == "app.py"]
    names: dict[str, Any] = {"__name__": "app"}
    exec(compile(block.padded(), block.page, "exec"), names)
    return names["app"]


def test_the_probes_are_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    (container,) = deployment()["containers"]
    probes = [container[probe]["httpGet"]["path"] for probe in ("readinessProbe", "livenessProbe")]
    with MockCluster(1) as cluster:
        monkeypatch.setenv("AIOKPROD_BOOTSTRAP_SERVERS", cluster.bootstrap_servers)
        with TestClient(application()) as client:
            assert client.post("/orders").status_code == 201  # ready, from here on
            assert [client.get(path).status_code for path in probes] == [200, 200]
            assert client.get(probes[0]).json() == "READY"


def test_without_kafka_the_service_is_alive_and_not_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIOKPROD_BOOTSTRAP_SERVERS", "127.0.0.1:1")
    with TestClient(application()) as client:
        assert (client.get("/health/ready").status_code, client.get("/health/live").status_code) == (503, 200)


def test_the_times_fit_into_the_grace_of_the_platform() -> None:
    pod = deployment()
    (container,) = pod["containers"]
    command = container["command"]
    for_requests = int(command[command.index("--timeout-graceful-shutdown") + 1])
    before = int(container["lifecycle"]["preStop"]["exec"]["command"][1])
    (block, *_) = blocks(PAGE, "python")
    close = int(block.text.partition("close_timeout=")[2].partition(")")[0])
    assert before + for_requests + close < pod["terminationGracePeriodSeconds"]
    assert f"= {before + for_requests + close} s" in PAGE.read_text(encoding="utf-8")
    settings = next(block for block in blocks(PAGE, "python") if block.marks.get("file") == "gunicorn.conf.py")
    names: dict[str, Any] = {}
    exec(settings.text, names)
    assert names["graceful_timeout"] > close
