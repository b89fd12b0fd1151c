"""`aiokprod transactions` against a `MockCluster` on a thread of this process."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from cli_runs import leave_open
from click.testing import CliRunner, Result

from aiokprod.cli.transactions import transactions
from aiokprod.testing import MockCluster


@pytest.fixture
def cluster() -> Iterator[MockCluster]:
    with MockCluster(2, auto_create_topics=False) as started:
        started.create_topic("t", partitions=2)
        yield started


def run(cluster: MockCluster, *arguments: str) -> Result:
    return CliRunner().invoke(transactions, [*arguments, "-b", cluster.bootstrap_servers])


def test_ids_are_listed(cluster: MockCluster) -> None:
    for name in ("orders-1", "orders-2", "other"):
        leave_open(cluster, name)
    listed = run(cluster, "list", "--prefix", "orders-", "--state", "Ongoing")
    assert listed.exit_code == 0
    lines = listed.stdout.splitlines()
    assert lines[0].split() == ["TRANSACTIONAL", "ID", "STATE", "PRODUCER", "ID", "COORDINATOR"]
    assert [line.split()[:2] for line in lines[1:]] == [["orders-1", "Ongoing"], ["orders-2", "Ongoing"]]
    found = [json.loads(line) for line in run(cluster, "list", "--json").stdout.splitlines()]
    assert [each["transactional_id"] for each in found] == ["orders-1", "orders-2", "other"]


def test_ids_are_described(cluster: MockCluster) -> None:
    leave_open(cluster)
    described = run(cluster, "describe", "orders-1")
    assert described.exit_code == 0
    assert described.stdout.splitlines()[1].split()[-1] == "t-0"
    (found,) = [json.loads(line) for line in run(cluster, "describe", "orders-1", "--json").stdout.splitlines()]
    assert (found["state"], found["partitions"]) == ("Ongoing", [["t", 0]])


def test_an_error_is_one_line_and_status_2(cluster: MockCluster) -> None:
    unknown = run(cluster, "describe", "unknown-id")
    assert (unknown.exit_code, unknown.stdout) == (2, "")
    assert len(unknown.stderr.splitlines()) == 1
    assert "TRANSACTIONAL_ID_NOT_FOUND" in unknown.stderr
    for told in (unknown, *(run(cluster, "abort", "--id", "unknown-id", *yes) for yes in ((), ("--yes",)))):
        assert "`aiokprod transactions find-hanging` finds it" in told.stderr and "find_hanging()" not in told.stderr
    for arguments in (
        ("list", "-X", "nonsense"),
        ("list", "-X", "lingr.ms=1"),
        ("list", "--config", "missing.properties"),
    ):
        wrong = run(cluster, *arguments)
        assert (wrong.exit_code, len(wrong.stderr.splitlines())) == (2, 1), wrong.stderr
        assert wrong.stderr.startswith("aiokprod transactions list: ")
    unnamed = {"AIOKPROD_BOOTSTRAP_SERVERS": ""}
    assert CliRunner().invoke(transactions, ["list"], env=unnamed).exit_code == 2
    assert run(cluster, "list", "--state", "Open").exit_code == 2
    assert run(cluster, "list", "--state", "ongoing").exit_code == 0


def test_what_hangs_is_found_and_aborted_by_its_place(cluster: MockCluster) -> None:
    leave_open(cluster)
    at = ("--topic", "t", "--partition", "0", "--offset", "0")
    healthy = run(cluster, "find-hanging", "--older-than", "0")
    assert (healthy.exit_code, healthy.stdout) == (0, "")
    assert healthy.stderr == "aiokprod transactions find-hanging: nothing hangs\n"
    still_known = run(cluster, "abort", *at, "--yes")
    assert (still_known.exit_code, "nothing hangs" in still_known.stderr) == (2, True)
    cluster.lose_transaction("orders-1")
    found = run(cluster, "find-hanging", "--older-than", "0", "--topic", "t")
    assert found.exit_code == 1
    assert found.stdout.splitlines()[1].split()[:3] == ["t", "0", "0"]
    (line,) = run(cluster, "find-hanging", "--older-than", "0", "--json").stdout.splitlines()
    assert json.loads(line)["start_offset"] == 0
    assert run(cluster, "find-hanging").exit_code == 0, "it is young"
    only_said = run(cluster, "abort", *at)
    assert (only_said.exit_code, only_said.stdout) == (2, "")
    assert "would abort t-0 from offset 0" in only_said.stderr and "--yes" in only_said.stderr
    assert run(cluster, "find-hanging", "--older-than", "0").exit_code == 1, "nothing was done"
    assert run(cluster, "abort", *at, "--yes").exit_code == 0
    assert run(cluster, "find-hanging", "--older-than", "0").exit_code == 0


def test_an_open_transaction_is_aborted_by_its_id(cluster: MockCluster) -> None:
    leave_open(cluster)
    only_said = run(cluster, "abort", "--id", "orders-1")
    assert (only_said.exit_code, "would abort the open transaction of orders-1" in only_said.stderr) == (2, True)
    assert cluster.transaction("orders-1").is_ongoing
    done = run(cluster, "abort", "--id", "orders-1", "--yes")
    assert (done.exit_code, done.stdout) == (0, "orders-1: aborted\n")
    again = run(cluster, "abort", "--id", "orders-1", "--yes")
    assert (again.exit_code, "is open" in again.stderr) == (2, True)
    assert "nothing is open" in run(cluster, "abort", "--id", "orders-1").stderr


@pytest.mark.parametrize(
    "arguments", [(), ("--id", "i", "--topic", "t"), ("--topic", "t"), ("--id", "i", "--offset", "1"), ("--partition", "0")],
    ids=["none", "both", "no place", "id and offset", "no topic"],
)  # fmt: skip
def test_one_of_the_two_ways_is_needed(cluster: MockCluster, arguments: tuple[str, ...]) -> None:
    wrong = run(cluster, "abort", *arguments)
    assert wrong.exit_code == 2
    assert "give either --id, or" in wrong.stderr


def test_what_would_steer_a_terminal_is_not_printed(cluster: MockCluster) -> None:
    leave_open(cluster, "a\x1b[31m\nb")
    listed = run(cluster, "list")
    assert "\x1b" not in listed.stdout
    assert len(listed.stdout.splitlines()) == 2
