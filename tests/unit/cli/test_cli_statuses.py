"""The table of exit statuses in docs/command_line.md: each is what commands end with, and each command keeps to it."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import pytest
from child_process import Child
from cli_runs import AIOKPROD, run

from aiokprod.cli.common import statuses
from aiokprod.testing import MockCluster

PAGE = Path(__file__).resolve().parents[3] / "docs" / "command_line.md"
LIMIT_S = 60.0
GONE = ("-b", "127.0.0.1:1", "-X", "start.timeout.ms=50")
NO_CLUSTER: dict[str, list[str]] = {
    "produce": ["t"],
    "read": ["t"],
    "tail": ["t"],
    "topics list": [],
    "topics describe": ["t"],
    "topics create": ["t"],
    "topics alter": ["t", "-o", "a=1"],
    "topics delete": ["t"],
    "groups list": [],
    "groups describe": ["g"],
    "ping": [],
    "verify": ["-n", "1"],
    "perf": ["-n", "1", "--client", "aiokprod"],
    "transactions list": [],
    "transactions describe": ["id"],
    "transactions find-hanging": [],
    "transactions abort": ["--id", "id"],
    "demo": ["-n", "1"],
    "audit": [".", "--topic", "t"],
}
"""each command that needs a cluster, with what else it needs"""
OTHERS = {"doctor", "config explain", "cluster", "completion"}


def leaves(command: click.Command, path: str = "") -> Iterator[str]:
    if not isinstance(command, click.Group):
        yield path
        return
    context = click.Context(command)
    for name in command.list_commands(context):
        inner = command.get_command(context, name)
        assert inner is not None
        yield from leaves(inner, f"{path} {name}".strip())


def process(arguments: str, after: str = "") -> str:
    """Return what a shell says the status of the process is."""
    program = f'{sys.executable} -m aiokprod {arguments} {after}; echo "${{PIPESTATUS[0]}}"'
    done = subprocess.run(["bash", "-c", program], capture_output=True, text=True, timeout=LIMIT_S, check=True)
    assert done.stderr == ""
    return done.stdout.strip()


def ended_by(number: signal.Signals) -> int:
    with MockCluster(1) as cluster:
        cluster.create_topic("t")
        command = [sys.executable, "-m", "aiokprod", "tail", "t", "-b", cluster.bootstrap_servers]
        with Child(command, env=dict(os.environ)) as tail:
            cluster.wait_until_seen("ListOffsets", 3, timeout_s=LIMIT_S)
            tail.send_signal(number)
            return tail.wait(LIMIT_S)


def of_topics_list() -> int:
    with MockCluster(1) as cluster:
        return run(cluster, "topics", "list").exit_code


def of_a_reader_that_ends() -> int:
    with MockCluster(1) as cluster:
        cluster.create_topic("t")
        return int(process(f"topics list -b {cluster.bootstrap_servers}", "| head -c 0"))


SHOWN: dict[int, Callable[[], int]] = {
    statuses.DONE: of_topics_list,
    statuses.NOT_GOOD: lambda: run(None, "doctor", *GONE).exit_code,
    statuses.NOT_DONE: lambda: run(None, "topics", "list", *GONE).exit_code,
    130: lambda: ended_by(signal.SIGINT),
    143: lambda: ended_by(signal.SIGTERM),
    141: of_a_reader_that_ends,
}


def test_the_table_has_each_status_that_is_shown_here() -> None:
    _, _, text = PAGE.read_text().partition("\n## Exit statuses\n")
    table = text.partition("\n\n## ")[0]
    rows = re.findall(r"^\| (\d+) \| (.*) \|$", table, re.MULTILINE)
    listed = [int(status) for status, _ in rows] + [
        int(each) for _, meaning in rows for each in re.findall(r"\b1\d\d\b", meaning)
    ]
    assert sorted(listed) == sorted(SHOWN)


@pytest.mark.parametrize("status", list(SHOWN))
def test_a_command_ends_with_the_status_of_the_table(status: int) -> None:
    assert SHOWN[status]() == status


def test_each_command_is_asked_for_its_statuses() -> None:
    assert sorted(leaves(AIOKPROD)) == sorted(NO_CLUSTER.keys() | OTHERS)


@pytest.mark.parametrize("path", list(NO_CLUSTER))
def test_a_command_without_its_cluster_is_not_done_and_says_why_in_one_line(path: str) -> None:
    done = run(None, *path.split(), *NO_CLUSTER[path], *GONE)
    assert done.exit_code == 2, done.output
    assert done.stdout == "" or path == "demo"  # which says first what it is about to do
    assert done.stderr.startswith(f"aiokprod {path}: ") and done.stderr.count("\n") == 1
    assert "was found within 0.05 s" in done.stderr  # the time for it, and not that for requests
    assert "127.0.0.1:1" in done.stderr


WITHOUT_TIMEOUT = {"produce", "demo", "audit"}
"""commands that wait for no single request"""


@pytest.mark.parametrize("path", sorted(NO_CLUSTER.keys() - WITHOUT_TIMEOUT))
def test_a_command_whose_time_was_too_short_names_the_option_that_set_it(path: str) -> None:
    with MockCluster(1) as cluster:
        cluster.create_topic("t")
        for api in ("Metadata", "FindCoordinator", "ListGroups"):
            cluster.delay_next(api, 0.1, times=None)  # the start has seconds
        done = run(cluster, *path.split(), *NO_CLUSTER[path], "--timeout", "0.001")
    assert done.exit_code == 2, done.output
    assert done.stderr.endswith(", or raise --timeout.\n") and "request_timeout_ms" not in done.stderr


@pytest.mark.parametrize("path", ["produce", "config explain"])
def test_a_command_has_no_timeout_that_would_change_nothing(path: str) -> None:
    done = run(None, *path.split(), "--timeout", "1")
    assert (done.exit_code, done.stdout) == (2, ""), done.output
    assert "--timeout" in done.stderr and done.stderr.count("\n") == 1


@pytest.mark.parametrize("path", sorted(leaves(AIOKPROD)))
def test_a_command_with_an_option_that_it_has_not_is_not_done(path: str) -> None:
    done = run(None, *path.split(), "--no-such-option")
    assert (done.exit_code, done.stdout) == (2, ""), done.output
    assert done.stderr.startswith(f"aiokprod {path}: ") and done.stderr.count("\n") == 1


@pytest.mark.parametrize("error", [click.ClickException("no"), click.FileError("file"), OSError(28, "No space")])
@pytest.mark.parametrize("path", ["cluster", "demo", "config explain"])
def test_an_error_without_a_context_is_not_done_and_named_after_its_command(
    path: str, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*arguments: object, **more: object) -> None:
        raise error

    place = {"cluster": "cluster.check_ports", "demo": "demo._demonstrated", "config explain": "config._explained"}
    monkeypatch.setattr(f"aiokprod.cli.{place[path]}", fails)
    done = run(None, *path.split())
    assert done.exit_code == 2
    assert done.stderr.startswith(f"aiokprod {path}: ") and done.stderr.count("\n") == 1


def test_a_port_that_is_taken_is_not_done() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert run(None, "cluster", "--port", str(taken.getsockname()[1])).exit_code == 2


@pytest.mark.parametrize("arguments", ["--version", "read -h", "completion bash", "config explain --all"])
def test_a_reader_that_has_ended_is_the_status_of_what_has_no_event_loop_too(arguments: str) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "aiokprod", *arguments.split()],
            stdout=writing, stderr=subprocess.PIPE, timeout=LIMIT_S, check=False,
        )  # fmt: skip
    finally:
        os.close(writing)
    assert (done.returncode, done.stderr) == (141, b"")
