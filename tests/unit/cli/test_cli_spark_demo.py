"""`aiokprod demo --spark`: there is no verdict, and no page, unless the driver of Spark was killed midway. Without Spark."""

from __future__ import annotations

import errno
import subprocess
import sys
import tempfile
from collections import Counter
from contextlib import nullcontext
from pathlib import Path
from typing import Any, NoReturn

import pytest
from click.testing import CliRunner

from aiokprod import audit
from aiokprod.audit.findings import Finding
from aiokprod.audit.verdict import Verdict
from aiokprod.cli import spark_demo
from aiokprod.cli.demo import demo
from aiokprod.config import ProducerConfig
from aiokprod.testing.demo_clusters import DemoCluster

WITH_A_JVM = """
import subprocess, sys
from pathlib import Path
jvm = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE)
pid = Path(sys.argv[1], "jvm.new")
pid.write_text(str(jvm.pid))
pid.rename(Path(sys.argv[1], "jvm.pid"))
jvm.wait()
"""
"""What the demo kills, and the driver sees it. The demo looks for the file, so it appears with its text."""
KILLED = WITH_A_JVM + "sys.exit(1)"
SECOND = """
import sys
from pathlib import Path
if Path(sys.argv[1], "jvm.pid").exists():
    sys.exit({status!r})
"""
"""The beginning of a program that ends with this status when it is started again."""


class LookedAtError(Exception):
    """The demo has gone on to the verdict."""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the demo's own folder; its cluster has as many records as the demo waits for when the driver has its JVM."""
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    config = ProducerConfig.of(bootstrap_servers="127.0.0.1:1")

    def records_in(topic: str) -> int:
        return 100 if (scratch / "jvm.pid").exists() else 0

    cluster = DemoCluster("nothing", config, lambda topic, count: None, lambda topic: ["broke it"], records_in)

    def read(*_: Any) -> Any:
        raise LookedAtError

    monkeypatch.setattr(spark_demo, "local_kafka", lambda: nullcontext(cluster))
    monkeypatch.setattr(spark_demo, "_session", read)
    monkeypatch.setattr(spark_demo, "PATIENCE_S", 30.0)  # of a second driver whose JVM is not killed
    monkeypatch.setattr(tempfile, "TemporaryDirectory", lambda: nullcontext(str(scratch)))
    return scratch


def demonstrated(driver: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    monkeypatch.setattr(spark_demo, "DRIVER", ("-c", driver))
    return CliRunner().invoke(demo, ["--spark", "--records", "100", "--report", str(tmp_path / "report")])


@pytest.mark.parametrize(
    ("driver", "told"),
    [
        pytest.param("pass", "had written everything before it was killed", id="it has ended with all its rows"),
        pytest.param(WITH_A_JVM, "had written everything before it was killed", id="it had nothing left to write"),
        pytest.param("raise SystemExit('no room')", "failed before it was killed:\nno room", id="it has failed"),
        pytest.param(
            SECOND.format(status="gone") + KILLED,
            "the second driver of Spark failed:\ngone",
            id="the second one has failed",
        ),
    ],
)
@pytest.mark.usefixtures("folder")
def test_without_a_kill_midway_there_is_no_verdict(
    driver: str, told: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    result = demonstrated(driver, monkeypatch, tmp_path)
    assert (result.exit_code, told in result.output) == (2, True), result.output
    assert not (tmp_path / "report").exists()
    assert "lost 0" not in result.output


@pytest.mark.usefixtures("folder")
def test_a_report_that_cannot_be_written_is_told_before_anything_starts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "report").mkdir()
    monkeypatch.setattr("tempfile.TemporaryFile", no_room)
    result = demonstrated("pass", monkeypatch, tmp_path)
    assert result.exit_code == 2
    assert result.output == f"aiokprod demo: {tmp_path / 'report'}: No space left on device\n"


@pytest.mark.parametrize(("verdict", "status"), [(Verdict(), 2), (Verdict(counts=Counter({Finding.LOST: 1})), 1)])
@pytest.mark.usefixtures("folder")
def test_the_verdict_is_told_also_if_the_report_cannot_be_written(
    verdict: Verdict, status: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def written(*_: object) -> NoReturn:
        no_room()

    monkeypatch.setattr(spark_demo, "_session", lambda folder: nullcontext())
    for name in ("read_orders", "_read"):
        monkeypatch.setattr(spark_demo, name, lambda *_: None)
    for name in ("marked", "claims_of"):
        monkeypatch.setattr(audit, name, lambda *_, **__: None)
    monkeypatch.setattr(audit, "run", lambda *_, **__: verdict)
    monkeypatch.setattr("aiokprod.audit.files.write", written)
    result = demonstrated(SECOND.format(status=0) + KILLED, monkeypatch, tmp_path)
    assert (result.exit_code, verdict.line in result.stdout) == (status, True), result.output
    why = f"--report is not complete: {tmp_path / 'report'}: No space left on device"
    assert result.stderr == f"aiokprod demo: {why}\n"
    assert "pictures: " not in result.output


def no_room(**_: object) -> NoReturn:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_what_is_started_with_spark_writes_its_warnings_into_the_log(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "spark.log"
    log.write_text("earlier, ")
    with spark_demo.stderr_to(log):
        subprocess.run([sys.executable, "-c", "import sys; sys.stderr.write('a warning')"], check=True)
    print("a line of ours", file=sys.stderr)
    assert log.read_text() == "earlier, a warning"
    assert capfd.readouterr().err == "a line of ours\n"


@pytest.mark.usefixtures("folder")
def test_behind_a_kill_the_rows_are_looked_at(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    commits = """
commits = Path(sys.argv[1], "checkpoint", "commits")
commits.mkdir(parents=True, exist_ok=True)
(commits / str({number})).touch()
(commits / ".{number}.crc").touch()
"""
    second = SECOND.format(status=0).replace(
        "    sys.exit", commits.format(number=11).replace("\n", "\n    ") + "sys.exit"
    )
    first = "import sys\nfrom pathlib import Path\n" + commits.format(number=2)
    result = demonstrated(second + first + KILLED, monkeypatch, tmp_path)
    assert isinstance(result.exception, LookedAtError), result.output
    phases = (
        "starting three brokers of Apache Kafka; ",
        "100 rows from a stream of Spark, ",
        "starting Spark\n",
        "  batch 3 of 12 is done\n",
        "  broke it\n",
        "  killed the driver of Spark (-9)",
        "starting Spark again\n",
        "  batch 12 of 12 is done\n",
        "written in ",
        "starting Spark to read everything back",
    )
    places = [result.output.find(each) for each in phases]
    assert -1 not in places and places == sorted(places), result.output
