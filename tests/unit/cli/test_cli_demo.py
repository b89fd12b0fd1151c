"""`aiokprod demo`: the exit status follows the verdict."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from aiokprod import __version__, compiled
from aiokprod.cli.demo import PARTITIONS, demo, lines_of, made_up
from aiokprod.config.command_line import START_TIMEOUT_MS, config_of, given_options
from aiokprod.testing import MockCluster


def run(*arguments: str) -> Result:
    result = CliRunner().invoke(demo, list(arguments))
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


def written(cluster: MockCluster) -> list[bytes | None]:
    (topic,) = {seen for seen in _topics(cluster) if seen.startswith("aiokprod-demo-")}
    return [record.value for record in cluster.records(topic)]


def _topics(cluster: MockCluster) -> list[str]:
    return list(cluster._state.topics)


def test_made_up_records_survive_the_faults_and_the_status_is_0() -> None:
    result = run("--records", "6000")
    assert result.exit_code == 0, result.output
    assert "lost 0, duplicate 0, reordered 0" in result.output
    assert "6,000 acknowledged, 0 failed" in result.output
    assert "moved the leader of partition 0" in result.output
    assert "batches resent: " in result.output
    assert "chaser" not in result.output and "epoch" not in result.output, "words of this library's own code"


def test_the_lines_of_a_file_are_sent_each_unlike_every_other(tmp_path: Path) -> None:
    file = tmp_path / "lines"
    file.write_bytes(b"same\r\nsame\n\n" + b"\xff\x00" + b"\nlast without an end")
    with MockCluster() as cluster:
        result = run("--file", str(file), "--bootstrap", cluster.bootstrap_servers)
        assert result.exit_code == 0, result.output
        assert "5 records" in result.output
        assert sorted(value or b"" for value in written(cluster)) == [
            b"0 same", b"1 same", b"2 ", b"3 \xff\x00", b"4 last without an end",
        ]  # fmt: skip
        assert len(cluster._state.topics[_topics(cluster)[0]].partitions) == PARTITIONS


def test_a_pipe_is_read_once(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_bytes, args=(b"a\nb\nc\n",), daemon=True)
    writer.start()
    result = run("--file", str(pipe))
    assert result.exit_code == 0, result.output
    assert "3 acknowledged, 0 failed" in result.output


def test_an_empty_file_is_told_before_anything_starts(tmp_path: Path) -> None:
    file = tmp_path / "empty"
    file.touch()
    result = run("--file", str(file))
    assert result.exit_code == 2
    assert "empty has no lines: there is nothing to send" in result.output
    assert "lost" not in result.output


def test_there_is_no_verdict_of_fewer_records_than_were_announced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aiokprod.cli.demo.made_up", lambda count, seed: iter([b"one"]))
    result = run("--records", "3")
    assert result.exit_code == 2
    assert "1 of 3 records were sent: there is no verdict" in result.output
    assert "lost 0" not in result.output


def test_records_that_fail_make_the_status_1() -> None:
    with MockCluster() as cluster:
        cluster.fail_next("Produce", "POLICY_VIOLATION")
        result = run("-n", "2000", "-b", cluster.bootstrap_servers)
        assert result.exit_code == 1
        failed = re.search(r"([\d,]+) failed", result.output)
        assert failed is not None and int(failed[1].replace(",", "")) > 0
        assert "lost 0, duplicate 0, reordered 0" in result.output  # what was acknowledged is there


def test_a_cluster_that_loses_what_it_acknowledged_makes_the_status_1() -> None:
    with MockCluster() as cluster:

        def lose() -> None:
            for topic in _topics(cluster):
                for partition in range(PARTITIONS):
                    records = cluster.records(topic, partition)
                    if records:
                        cluster.delete_records(topic, partition, records[-1].offset)

        cluster.on_request("ListOffsets", lose)
        result = run("--records", "2000", "--bootstrap", cluster.bootstrap_servers)
        assert result.exit_code == 1
        assert "lost 0" not in result.output


def test_a_cluster_is_embedded_real_or_given_and_never_two_of_them() -> None:
    result = run("--real", "--bootstrap", "localhost:9092")
    assert result.exit_code == 2
    assert "exclude each other" in result.output


@pytest.mark.parametrize("arguments", [["--records", "many"], ["--file", "/nowhere/at/all"], ["--what"]])
def test_options_that_make_no_sense_are_usage_errors(arguments: list[str]) -> None:
    assert run(*arguments).exit_code == 2


def test_the_same_seed_makes_up_the_same_records(tmp_path: Path) -> None:
    assert list(made_up(50, 3)) == list(made_up(50, 3)) != list(made_up(50, 4))
    assert len(set(made_up(1_000, 1))) == 1_000
    file = tmp_path / "lines"
    file.write_bytes(b"a\n" * 3)
    assert list(lines_of(file)) == [b"0 a", b"1 a", b"2 a"]


def test_the_command_tells_its_version_and_its_verbs() -> None:
    def aiokprod(*arguments: str) -> str:
        command = [sys.executable, "-m", "aiokprod", *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout

    assert aiokprod("--version") == f"aiokprod {__version__} ({'compiled' if compiled else 'pure Python'})\n"
    assert "demo" in aiokprod("--help")


def test_a_base_install_tells_its_version_and_what_the_other_verbs_need() -> None:
    def run_without_click(*arguments: str) -> subprocess.CompletedProcess[str]:
        program = f"import sys; sys.modules['click'] = None; sys.argv[1:] = {list(arguments)}; import aiokprod.__main__"
        return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)

    version = run_without_click("--version")
    assert (version.returncode, version.stdout.split()[:2]) == (0, ["aiokprod", __version__])
    demo = run_without_click("demo")
    assert demo.returncode == 2
    assert "aiokprod[cli]" in demo.stderr
    for arguments in (("demo", "--spark"), ("audit", "claims")):  # all at once
        assert '"aiokprod[audit,cli]"' in run_without_click(*arguments).stderr


def test_the_demo_on_spark_refuses_what_it_does_not_use() -> None:
    done = run("--spark", "--real")
    assert done.exit_code == 2 and "leave --real out" in done.stderr


@pytest.mark.parametrize("servers", ["127.0.0.1:1", "no-such-host.invalid:9092"])
def test_a_cluster_that_is_not_there_is_one_line_within_seconds(servers: str) -> None:
    began = time.monotonic()
    result = run("--bootstrap", servers, "--records", "10", "-X", "start.timeout.ms=300")
    assert result.exit_code == 2
    assert result.stderr.startswith("aiokprod demo: ") and result.stderr.count("\n") == 1
    assert servers.partition(":")[0] in result.stderr
    assert time.monotonic() - began < 20  # and not the 30 s of a producer's start


def test_a_command_waits_five_seconds_for_a_cluster_unless_it_is_told_otherwise() -> None:
    assert config_of(given_options("kafka:9092")).start_timeout_ms == START_TIMEOUT_MS == 5_000
    assert config_of(given_options("kafka:9092", None, ["start_timeout_ms=7000"])).start_timeout_ms == 7_000


@pytest.mark.parametrize("records", ["-5", "0"])
def test_a_number_of_records_below_one_is_refused(records: str) -> None:
    result = run("--records", records)
    assert result.exit_code == 2 and "--records" in result.stderr


def test_options_of_a_file_and_of_pairs_reach_the_connection(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    with MockCluster() as cluster:
        file.write_text(
            f"metadata.broker.list=127.0.0.1:1\nclient.id=from-file\nrequest.timeout.ms=4000\n# {cluster}\n"
        )
        result = run(
            "--config", str(file), "-X", f"bootstrap.servers={cluster.bootstrap_servers}", "-X", "client_id=from-pair",
            "--bootstrap", cluster.bootstrap_servers, "--records", "100",
        )  # fmt: skip
        assert result.exit_code == 0, result.output
        assert {seen.client_id for seen in cluster.requests("Produce")} == {"from-pair"}


@pytest.mark.parametrize("pair", ["secret-of-mine", "=secret-of-mine"])
def test_a_pair_that_is_none_is_told_without_its_text(pair: str) -> None:
    result = run("-X", pair)
    assert result.exit_code == 2
    assert "-X needs name=value" in result.stderr and "secret-of-mine" not in result.stderr


@pytest.mark.parametrize("more", [["--config", __file__], ["-X", "linger.ms=5"]])
def test_a_started_cluster_takes_no_options_of_a_connection(more: list[str]) -> None:
    assert "exclude each other" in run("--real", *more).output


@pytest.mark.parametrize("verb", [[], ["demo"], ["cluster"]])
def test_every_command_has_a_short_help(verb: list[str]) -> None:
    command = [sys.executable, "-m", "aiokprod", *verb, "-h"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.startswith("Usage: aiokprod") and "-h, --help" in done.stdout
