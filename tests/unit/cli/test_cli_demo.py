"""`aiokprod demo`: the exit status follows the verdict."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from aiokprod import __version__, compiled
from aiokprod.cli.demo import PARTITIONS, demo, lines_of, made_up
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
    assert "lost 0, duplicated 0, reordered 0" in result.output
    assert "6,000 acknowledged, 0 failed" in result.output
    assert "moved the leader of partition 0" in result.output


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


def test_an_empty_file_is_a_clean_run(tmp_path: Path) -> None:
    file = tmp_path / "empty"
    file.touch()
    result = run("--file", str(file))
    assert result.exit_code == 0, result.output
    assert "0 acknowledged, 0 failed" in result.output


def test_records_that_fail_make_the_status_1() -> None:
    with MockCluster() as cluster:
        cluster.fail_next("Produce", "POLICY_VIOLATION")
        result = run("--records", "2000", "--bootstrap", cluster.bootstrap_servers)
        assert result.exit_code == 1
        failed = re.search(r"([\d,]+) failed", result.output)
        assert failed is not None and int(failed[1].replace(",", "")) > 0
        assert "lost 0, duplicated 0, reordered 0" in result.output  # what was acknowledged is there


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
