"""Signals, a reader that ends, a terminal: as processes, as users meet them."""

from __future__ import annotations

import asyncio
import contextlib
import os
import pty
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from child_process import Child

from aiokprod.cli.commands import group
from aiokprod.cli.common.running import line_of, status_of, tell
from aiokprod.errors import (
    AiokprodError,
    AuthenticationError,
    BootstrapError,
    ClusterAuthorizationError,
    CodecUnavailableError,
    ConnectionLostError,
    DeliveryTimeoutError,
    InvalidPartitionError,
    InvalidTopicError,
    PartitionOutOfRangeError,
    ProducerFailedError,
    RequestTimeoutError,
    TlsError,
    TopicAuthorizationError,
    UnknownTopicError,
    UsageError,
)
from aiokprod.testing import MockCluster
from aiokprod.wire.codes import ErrorCode

COMMAND = [sys.executable, "-m", "aiokprod"]
LIMIT_S = 60.0


@pytest.fixture
def cluster() -> Iterator[MockCluster]:
    with MockCluster(1) as started:
        started.create_topic("t")
        yield started


def environment(cluster: MockCluster, **more: str) -> dict[str, str]:
    # Without PYTHONUNBUFFERED, which hides that what is written late may fail late.
    mine = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    return {**mine, "AIOKPROD_BOOTSTRAP_SERVERS": cluster.bootstrap_servers, **more}


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_producer_that_is_interrupted_tells_what_was_acknowledged(
    cluster: MockCluster, number: signal.Signals, status: int
) -> None:
    with Child(
        [*COMMAND, "produce", "t"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment(cluster),
    ) as process:  # fmt: skip
        assert process.stdin is not None and process.stderr is not None and process.stdout is not None
        process.stdin.write(b"one\ntwo\n")
        process.stdin.flush()
        cluster.wait_until_seen("Produce", timeout_s=LIMIT_S)
        process.send_signal(number)
        assert process.wait(LIMIT_S) == status  # though standard input is still open
        assert process.stderr.read() == b"aiokprod produce: 2 acknowledged, 0 failed\n"
        assert process.stdout.read() == b""
    assert [record.value for record in cluster.records("t")] == [b"one", b"two"]


@pytest.mark.parametrize("command", [["ping"], ["tail", "t"], ["demo", "-n", "1"]])
def test_a_cluster_that_is_not_there_is_one_line_of_the_process(command: list[str]) -> None:
    """As a process: in a test's own process warnings go to pytest."""
    done = subprocess.run(
        [*COMMAND, *command, "-b", "127.0.0.1:1", "-X", "start.timeout.ms=300"],
        capture_output=True, text=True, timeout=LIMIT_S, check=False,
    )  # fmt: skip
    assert done.returncode == 2 and done.stderr.count("\n") == 1, done.stderr
    assert done.stderr.startswith(f"aiokprod {command[0]}: no cluster was found within 0.3 s; tried 127.0.0.1:1: ")


def test_a_tail_that_is_interrupted_ends_without_a_word(cluster: MockCluster) -> None:
    with Child(
        [*COMMAND, "tail", "t"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment(cluster)
    ) as process:
        cluster.wait_until_seen("ListOffsets", 3, timeout_s=LIMIT_S)
        process.send_signal(signal.SIGINT)
        assert process.wait(LIMIT_S) == 130
        assert process.stdout is not None and process.stderr is not None
        assert (process.stdout.read(), process.stderr.read()) == (b"", b"")


@pytest.mark.parametrize(
    ("command", "held"),
    [
        (["perf", "--rate", "50", "--client", "aiokprod"], None),
        (["perf", "--rate", "50", "--client", "confluent-kafka"], None),
        (["verify", "-n", "100000"], None),
        (["verify"], "Fetch"),
        (["doctor", "t"], "DescribeConfigs"),
        (["topics", "describe", "t"], "DescribeConfigs"),
        (["demo", "-n", "100000", "-b", "SERVERS"], None),
    ],
    ids=lambda value: " ".join(value[:2]) if isinstance(value, list) else value,
)
def test_a_command_that_is_interrupted_ends_without_a_word_and_deletes_its_topic(
    cluster: MockCluster, command: list[str], held: str | None, tmp_path: Path
) -> None:
    if held is not None:
        cluster.hold(held)  # so it is certainly at work
    words = [cluster.bootstrap_servers if word == "SERVERS" else word for word in command]
    with Child(
        [*COMMAND, *words],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=tmp_path, env=environment(cluster, TMPDIR=str(tmp_path)),
    ) as process:  # fmt: skip
        cluster.wait_until_seen(held or "Produce", 1 if held else 2, timeout_s=LIMIT_S)
        process.send_signal(signal.SIGINT)
        assert process.wait(LIMIT_S) == 130
        assert process.stderr is not None and process.stderr.read() == b""
    left = {name for name in cluster.topics if not name.startswith("aiokprod-demo-")}  # demo keeps its topic
    assert left == {"t"}
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("command", "held", "line"),
    [
        (
            ["topics", "create", "new", "--yes"], "CreateTopics",
            "aiokprod topics create: interrupted: topic 'new' may have been created; see: aiokprod topics describe new",
        ),
        (
            ["topics", "delete", "t", "--yes"], "DeleteTopics",
            "aiokprod topics delete: interrupted: topic 't' may have been deleted; see: aiokprod topics list",
        ),
        (
            ["verify"], "CreateTopics",
            r"aiokprod verify: interrupted: topic '(aiokprod-\w+-\w+)' may have been created; see: aiokprod topics describe \1",
        ),
        (["audit", ".", "-b", "SERVERS", "--topic", "t"], "ListOffsets", "aiokprod audit: not judged: interrupted"),
    ],
    ids=["create", "delete", "verify", "audit"],
)  # fmt: skip
def test_an_interrupted_command_tells_in_one_line_what_is_not_known(
    cluster: MockCluster, command: list[str], held: str, line: str, tmp_path: Path
) -> None:
    cluster.hold(held)  # carried out, and not answered
    words = [cluster.bootstrap_servers if word == "SERVERS" else word for word in command]
    with Child(
        [*COMMAND, *words],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path,
        env=environment(cluster, TMPDIR=str(tmp_path)),
    ) as process:  # fmt: skip
        cluster.wait_until_seen(held, timeout_s=LIMIT_S)
        process.send_signal(signal.SIGINT)
        assert process.wait(LIMIT_S) == 130
        assert process.stdout is not None and process.stderr is not None
        assert process.stdout.read() == ""
        assert re.fullmatch(line + "\n", process.stderr.read())
    assert list(tmp_path.iterdir()) == []


def until_taken(pid: int) -> None:
    """Wait until no signal waits for the process: two that wait are one."""
    while int(re.findall(r"^ShdPnd:\s*(\w+)", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)[0], 16):
        time.sleep(0.01)


def test_after_ctrl_c_what_was_read_is_delivered_and_a_second_one_gives_that_up(cluster: MockCluster) -> None:
    for is_released in (True, False):
        rule = cluster.hold("Produce")
        seen = cluster.requests_seen("Produce")
        with Child(
            [*COMMAND, "produce", "t"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment(cluster),
        ) as process:  # fmt: skip
            assert process.stdin is not None and process.stderr is not None
            process.stdin.write(b"one\n")
            process.stdin.close()
            cluster.wait_until_seen("Produce", seen + 1, timeout_s=LIMIT_S)
            process.send_signal(signal.SIGINT)
            if is_released:
                cluster.release(rule)
            else:
                until_taken(process.pid)
                process.send_signal(signal.SIGINT)
            assert process.wait(LIMIT_S) == 130
            assert b"%d acknowledged" % is_released in process.stderr.read()
        if not is_released:
            cluster.release(rule)


def test_a_reader_that_ends_ends_the_command_without_a_word(cluster: MockCluster) -> None:
    produced = subprocess.run(
        [*COMMAND, "produce", "t"], input=b"x" * 99 + b"\n", env=environment(cluster), capture_output=True, check=True
    )
    assert produced.stdout == b""
    program = f'{sys.executable} -m aiokprod read t t | head -c 0; echo "${{PIPESTATUS[0]}}"'
    done = subprocess.run(["bash", "-c", program], env=environment(cluster), capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("141\n", "")
    program = (
        f"yes | head -n 30000 | {sys.executable} -m aiokprod produce t --offsets --failed /dev/null"
        ' | head -n 1; echo "${PIPESTATUS[2]}"'
    )
    done = subprocess.run(["bash", "-c", program], env=environment(cluster), capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[1] == "141"
    assert "Traceback" not in done.stderr and done.stderr.count("\n") == 1 and "acknowledged" in done.stderr


def test_streams_that_are_closed_are_empty_ones(cluster: MockCluster) -> None:
    program = (
        f"{sys.executable} -m aiokprod produce t <&-; echo $?; {sys.executable} -m aiokprod topics list >&-; echo $?;"
        f" {sys.executable} -m aiokprod read t >/dev/full; echo $?"
    )
    write = subprocess.run(
        [*COMMAND, "produce", "t"], input=b"v\n", env=environment(cluster), capture_output=True, check=True
    )
    assert b"1 acknowledged" in write.stderr
    done = subprocess.run(["bash", "-c", program], env=environment(cluster), capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["0", "0", "2"]
    assert done.stderr.splitlines() == [
        "aiokprod produce: 0 acknowledged, 0 failed", "aiokprod read: standard output: No space left on device",
    ]  # fmt: skip


def on_terminal(*arguments: str, **environ: str) -> bytes:
    """Run a command whose output and errors are a terminal; return what it showed."""
    child, terminal = pty.fork()
    if child == 0:
        os.execve(COMMAND[0], [*COMMAND, *arguments], {**os.environ, "TERM": "xterm", **environ})
    shown = b""
    try:
        while chunk := os.read(terminal, 4096):
            shown += chunk
    except OSError:
        pass  # the terminal ends with its last process
    os.waitpid(child, 0)
    os.close(terminal)
    return shown


def test_a_terminal_gets_colour_and_a_bar_unless_it_wants_none(cluster: MockCluster, tmp_path: object) -> None:
    servers = {"AIOKPROD_BOOTSTRAP_SERVERS": cluster.bootstrap_servers}
    lines = f"{tmp_path}/lines"
    with open(lines, "w") as file:  # noqa: PTH123
        file.write("v\n" * 100)
    shown = on_terminal("produce", "t", "-f", lines, **servers)
    assert b"\x1b[" in shown and b"100 acknowledged, 0 failed" in shown
    assert b"\x1b[32m" in on_terminal("doctor", **servers)
    for wish in ({"NO_COLOR": "1"}, {"TERM": "dumb"}):
        assert b"\x1b" not in on_terminal("produce", "t", "-f", lines, **servers, **wish)
        assert b"\x1b" not in on_terminal("doctor", **servers, **wish)


def test_an_error_is_one_line_with_what_to_do() -> None:
    assert line_of(BootstrapError("no cluster\nmore")) == (
        "no cluster. Check -b (bootstrap.servers), the network and the brokers' advertised.listeners."
        " -X start.timeout.ms=20000 waits longer."
    )
    assert line_of(FileNotFoundError(2, "No such file or directory", "x")) == "x: No such file or directory"
    assert "\x1b" not in line_of(ConnectionLostError("a\x1b[31m"))
    assert line_of(CodecUnavailableError("lz4 needs a package: pip install x")) == "lz4 needs a package: pip install x"


def test_an_error_of_the_work_is_status_2(capsys: pytest.CaptureFixture[str]) -> None:
    async def fails() -> int:
        raise ConnectionLostError("gone")

    async def finds_no_cluster() -> int:
        raise BootstrapError("no cluster")

    async def is_cancelled() -> int:
        raise asyncio.CancelledError

    assert status_of(fails) == 2
    assert capsys.readouterr().err.startswith("aiokprod: gone. ")
    assert status_of(finds_no_cluster) == 2
    assert capsys.readouterr().err.endswith("(aiokprod doctor finds out more)\n")
    assert status_of(is_cancelled) == 130


def test_what_is_told_does_not_steer_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    tell("a broker says \x1b[31m\n\u202e")
    assert capsys.readouterr().err == "aiokprod: a broker says \\x1b[31m\\n\\u202e\n"


def test_an_output_that_takes_nothing_changes_no_status(cluster: MockCluster) -> None:
    program = "; ".join(
        f"{sys.executable} -m aiokprod {words}; echo $? >&3"
        for words in (
            "--help >/dev/full",
            "read --help >/dev/full",
            "audit -h >/dev/full",
            "read nothing.here 2>/dev/full",
            "nonsense 2>/dev/full",
        )
    )
    done = subprocess.run(
        ["bash", "-c", f"exec 3>&1; {program}"], env=environment(cluster), capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["2", "2", "2", "2", "2"]
    assert done.stderr.splitlines() == [
        "aiokprod: standard output: No space left on device",
        "aiokprod read: standard output: No space left on device",
        "aiokprod audit: standard output: No space left on device",
    ]


def test_no_bar_is_drawn_over_what_is_typed(cluster: MockCluster) -> None:
    child, terminal = pty.fork()
    if child == 0:
        os.execve(COMMAND[0], [*COMMAND, "produce", "t"], {**environment(cluster), "TERM": "xterm"})
    os.write(terminal, b"typed\n\x04")
    shown = b""
    with contextlib.suppress(OSError):  # the terminal ends with its last process
        while chunk := os.read(terminal, 4096):
            shown += chunk
    os.waitpid(child, 0)
    os.close(terminal)
    assert b"1 acknowledged" in shown and b"\x1b" not in shown


@pytest.mark.parametrize(
    "kind",
    [BootstrapError, ConnectionLostError, DeliveryTimeoutError, InvalidPartitionError, InvalidTopicError,
     PartitionOutOfRangeError, RequestTimeoutError, TlsError, TopicAuthorizationError, UnknownTopicError, UsageError],
)  # fmt: skip
def test_advice_is_for_a_person_and_not_for_a_program(kind: type[AiokprodError]) -> None:
    line = line_of(kind("it failed"))
    assert line.startswith("it failed")
    for word in (
        "()",
        "partitions_for",
        "_servers",
        "_ms",
        "the producer",
        "persistence",
        "allow_auto",
        "security_protocol",
    ):
        assert word.lower() not in line.lower()


def test_the_advice_after_a_timeout_is_the_option_of_the_command_if_it_has_one() -> None:
    for path, has_option in (("read", True), ("transactions list", True), ("demo", False)):
        command: click.Command = group("0", "version")
        for word in path.split():
            assert isinstance(command, click.Group)
            found = command.get_command(click.Context(command), word)
            assert found is not None
            command = found
        with click.Context(command):
            assert ("--timeout" in line_of(RequestTimeoutError("no answer"))) is has_option


def test_the_advice_is_that_of_the_cause_if_that_is_what_happened() -> None:
    unknown, failed = (
        UnknownTopicError("no broker has told of topic 't'"),
        ProducerFailedError("the producer has failed"),
    )
    unknown.__cause__ = RequestTimeoutError("no metadata within 30 s")
    failed.__cause__ = ClusterAuthorizationError("no producer id")
    assert line_of(unknown) == "no broker has told of topic 't'. Check how busy the broker is, or raise --timeout."
    assert line_of(failed).startswith("the producer has failed. Grant this principal WRITE on the topic ")


@pytest.mark.parametrize(
    ("code", "advice"),
    [
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "`aiokprod topics list` shows the topics"),
        (ErrorCode.LEADER_NOT_AVAILABLE, "Try again in some seconds"),
        (ErrorCode.INVALID_TOPIC_EXCEPTION, "A name is 1 to 249 "),
    ],
)
def test_a_topic_that_cannot_be_used_is_not_told_as_one_that_does_not_exist(code: ErrorCode, advice: str) -> None:
    assert f". {advice}" in line_of(UnknownTopicError("topic 't'", code=code))


def test_advice_of_one_error_stays() -> None:
    error = UnknownTopicError("topic 'ordres' does not exist")
    error.advice = "Did you mean 'orders'?"
    assert line_of(error) == "topic 'ordres' does not exist. Did you mean 'orders'?"


@pytest.mark.parametrize("kind", [BootstrapError, TlsError, AuthenticationError])
def test_a_cluster_that_is_not_reached_is_told_with_the_doctor(
    kind: type[AiokprodError], capsys: pytest.CaptureFixture[str]
) -> None:
    async def fails() -> int:
        raise kind("not reached")

    assert status_of(fails) == 2
    assert capsys.readouterr().err.endswith("(aiokprod doctor finds out more)\n")


def test_a_full_standard_output_and_a_rule_of_names_are_told_once() -> None:
    assert line_of(OSError(28, "No space left on device")) == "standard output: No space left on device"
    told = line_of(
        InvalidTopicError("'' is no topic name: 1 to 249 of the characters a-z A-Z 0-9 . _ - and not '.' or '..'")
    )
    assert told.count("1 to 249") == 1 and line_of(InvalidTopicError("no")).count("1 to 249") == 1
