"""`aiokprod audit`, without Spark: 1 is only for records that are wrong; what cannot be judged is 2, and one line."""

from __future__ import annotations

import subprocess
import sys
from argparse import Namespace
from collections import Counter
from pathlib import Path

import pytest
from click.testing import CliRunner

from aiokprod import audit as audit_package
from aiokprod.audit import Finding, SchemaError, Verdict, command
from aiokprod.audit.command import main
from aiokprod.audit.files import check, write
from aiokprod.cli.audit import audit
from aiokprod.config import ProducerConfig
from aiokprod.errors import UnknownTopicError
from aiokprod.spark import audit as by_spark

ARGUMENTS = ["claims", "--log", "log"]


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (OSError("the disk\nand more"), "the disk"),
        (SchemaError("the log has no column"), "the log has no column"),
        (UnknownTopicError("no topic"), "no topic"),
        (ExceptionGroup("two", [ExceptionGroup("one", [UnknownTopicError("no topic")]), OSError("x")]), "no topic"),
        (OverflowError("2^63 is too large"), "OverflowError: 2^63 is too large"),
        (ValueError("Expecting value\nline 1"), "ValueError: Expecting value"),
        (RuntimeError(), "RuntimeError: "),
        (OSError(), "OSError: "),
    ],
)
def test_whatever_goes_wrong_is_not_judged_in_one_line(
    error: Exception, line: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(options: Namespace) -> Verdict:
        raise error

    monkeypatch.setattr(command, "_audited", fails)
    assert main(ARGUMENTS) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.startswith(f"python -m aiokprod.audit: not judged: {line}")
    assert told.err.count("\n") == 1


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device of Linux")
@pytest.mark.parametrize("arguments", [("--nonsense",), ("missing", "--log", "missing"), ("--help",)])
def test_a_line_that_cannot_be_written_is_no_verdict(arguments: tuple[str, ...]) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "aiokprod.audit", *arguments], stdout=full, stderr=full, timeout=60, check=False
        )
    assert done.returncode == 2


def test_ctrl_c_is_no_verdict_and_no_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(options: Namespace) -> Verdict:
        raise KeyboardInterrupt

    monkeypatch.setattr(command, "_audited", interrupted)
    assert main(ARGUMENTS) == 130
    assert capsys.readouterr() == ("", "python -m aiokprod.audit: not judged: interrupted\n")


def test_a_folder_that_cannot_be_written_is_told_before_anything_is_judged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def judged(options: Namespace) -> Verdict:
        raise AssertionError("the audit was made")

    monkeypatch.setattr(command, "_audited", judged)
    (tmp_path / "file").touch()
    assert main([*ARGUMENTS, "--out", str(tmp_path / "file" / "audit")]) == 2
    assert f"'{tmp_path / 'file' / 'audit'}'" in capsys.readouterr().err
    check(tmp_path / "new" / "audit")
    assert [each.name for each in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize("name", ["summary.json", "findings.parquet", "latencies.parquet", "index.html"])
def test_a_file_of_an_earlier_audit_that_cannot_be_replaced_is_told_before_anything_is_judged(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def judged(options: Namespace) -> Verdict:
        raise AssertionError("the audit was made")

    monkeypatch.setattr(command, "_audited", judged)
    (tmp_path / name).mkdir()  # what is read-only for others is not for root
    assert main([*ARGUMENTS, "--out", str(tmp_path)]) == 2
    assert f"'{tmp_path / name}'" in capsys.readouterr().err


def test_the_check_leaves_the_files_of_an_earlier_audit_as_they_are(tmp_path: Path) -> None:
    write(Verdict(), tmp_path)
    before = {each: each.read_bytes() for each in tmp_path.iterdir()}
    check(tmp_path)
    assert {each: each.read_bytes() for each in tmp_path.iterdir()} == before
    assert len(before) == 4


@pytest.mark.parametrize(("verdict", "status"), [(Verdict(late=0), 2), (Verdict(counts=Counter({Finding.LOST: 1})), 1)])
def test_the_verdict_is_told_although_the_disk_is_full_by_then(
    verdict: Verdict, status: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(verdict: Verdict, folder: Path) -> None:
        raise OSError(28, "No space left on device", str(folder / "summary.json"))

    monkeypatch.setattr(command, "_audited", lambda options: verdict)
    monkeypatch.setattr(command, "write", fails)
    assert main([*ARGUMENTS, "--out", str(tmp_path)]) == status
    told = capsys.readouterr()
    assert told.out == f"{verdict.line}\n"
    assert told.err.startswith("python -m aiokprod.audit: --out is not complete: ") and "summary.json" in told.err


@pytest.mark.parametrize(
    ("verdict", "status"),
    [(Verdict(late=0), 0), (Verdict(counts=Counter({Finding.LOST: 1})), 1), (Verdict(problems=["half of it"]), 2)],
)
def test_the_status_is_that_of_the_verdict(
    verdict: Verdict, status: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "_audited", lambda options: verdict)
    assert main(ARGUMENTS) == status
    assert capsys.readouterr().out == f"{verdict.line}\n"


def test_the_audit_is_the_same_under_its_name_in_spark() -> None:
    for name in audit_package.__all__:
        assert getattr(by_spark, name) is getattr(audit_package, name)
    assert by_spark.files.write is write
    helped = subprocess.run(
        [sys.executable, "-m", "aiokprod.spark.audit", "--help"], capture_output=True, text=True, check=True
    )
    assert "Exit status: 0 clean" in helped.stdout


def test_without_spark_the_command_explains_itself_and_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "pyspark"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "pyspark", None)
    for option in ("--help", "-h"):
        helped = CliRunner().invoke(audit, [option])
        assert helped.exit_code == 0
        assert "Exit status: 0 clean" in helped.output
    done = CliRunner().invoke(audit, ARGUMENTS)
    assert done.exit_code == 2
    assert done.stderr.startswith("aiokprod audit: not judged: the audit needs Spark")
    assert 'pip install "aiokprod[audit]"' in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    "arguments",
    [
        ["claims"],
        ["claims", "--topic", "orders"],
        ["claims", "--bootstrap", "kafka:9092"],
        ["claims", "-b", "kafka:9092"],
        ["claims", "--config", "client.properties"],
        ["claims", "--log", "log", "--topic", "orders"],
        ["claims", "--log", "log", "--bootstrap", "kafka:9092"],
        ["claims", "--log", "log", "-X", "client.id=a"],
        ["claims", "--log", "log", "--kafka-source"],
    ],
)
def test_a_dump_and_a_cluster_exclude_each_other_and_one_is_needed(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    told = capsys.readouterr().err
    assert "--bootstrap" in told
    assert told.count("\n") == 1 and told.endswith("See: python -m aiokprod.audit --help\n")


@pytest.mark.parametrize("missing", ["claims", "log"])
def test_a_folder_that_is_not_there_is_said_before_spark_starts(
    missing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def starts(master: str | None) -> None:
        raise AssertionError("Spark was started")

    monkeypatch.setattr(command, "_session", starts)
    there, nowhere = str(tmp_path), str(tmp_path / "nowhere")
    arguments = [nowhere, "--log", there] if missing == "claims" else [there, "--log", nowhere]
    assert main(arguments) == 2
    assert capsys.readouterr().err == f"python -m aiokprod.audit: not judged: {nowhere} does not exist\n"


def test_options_of_a_file_and_of_pairs_reach_the_connection(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    configs: list[ProducerConfig] = []

    async def reads(config: ProducerConfig, topics: list[str], folder: Path) -> int:
        configs.append(config)
        raise OSError("enough")

    monkeypatch.setattr(command, "read_back", reads)
    file = tmp_path / "client.properties"
    file.write_text("bootstrap.servers=kafka:9093\nsecurity.protocol=SSL\nclient.id=file\n")
    assert main([str(tmp_path), "--config", str(file), "-X", "client.id=pair", "--topic", "orders"]) == 2
    (config,) = configs
    assert (config.bootstrap_addresses, config.security_protocol, config.client_id) == (
        (("kafka", 9093),),
        "SSL",
        "pair",
    )


def test_a_cluster_that_is_not_there_is_one_line_within_seconds(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(tmp_path), "--bootstrap", "127.0.0.1:1", "-X", "start.timeout.ms=300", "--topic", "orders"]) == 2
    told = capsys.readouterr().err
    assert told.startswith("python -m aiokprod.audit: not judged: ") and "127.0.0.1" in told and told.count("\n") == 1
