"""`aiokprod audit`, without Spark: 1 is only for records that are wrong; what cannot be judged is 2, and one line."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections import Counter

import pytest
from click.testing import CliRunner

from aiokprod.cli.audit import audit
from aiokprod.errors import UnknownTopicError
from aiokprod.spark.audit import Finding, SchemaError, Verdict, command
from aiokprod.spark.audit.command import main

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
    assert told.err.startswith(f"not judged: {line}")
    assert told.err.count("\n") == 1


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
    assert done.stderr.startswith("not judged: the audit needs Spark")
    assert 'pip install "aiokprod[audit]"' in done.stderr
    assert done.stderr.count("\n") == 1
