"""Kafka's jars, fetched by a `mvn` of ours that copies nothing from anywhere."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from aiokprod.testing.kafka_cluster.errors import KafkaClusterError
from aiokprod.testing.kafka_cluster.jars import cache_directory, can_run_processes, find_java, kafka_classpath

GOOD_MAVEN = """\
#!/bin/sh
for word in "$@"; do
  case "$word" in
    -DoutputDirectory=*) out="${word#*=}" ;;
    -Dkafka.version=*) version="${word#*=}" ;;
  esac
done
/bin/mkdir -p "$out" && : > "$out/kafka-$version.jar"
echo run >> "$COUNT_FILE"
echo "$@" >> "$COUNT_FILE.words"
"""
FAILING_MAVEN = "#!/bin/sh\necho 'no such version'\nexit 1\n"
Tool = Callable[[str, str], None]


@pytest.fixture
def tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tool:
    """Return a function that puts a program into an otherwise empty PATH."""
    programs = tmp_path / "bin"
    programs.mkdir()
    monkeypatch.setenv("PATH", str(programs))
    monkeypatch.setenv("AIOKPROD_KAFKA_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("COUNT_FILE", str(tmp_path / "count"))
    monkeypatch.delenv("JAVA_HOME", raising=False)

    def make(name: str, text: str) -> None:
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)

    return make


def test_the_cache_is_where_the_environment_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AIOKPROD_KAFKA_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", "/xdg")
    assert cache_directory() == Path("/xdg/aiokprod/kafka")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_directory() == Path.home() / ".cache/aiokprod/kafka"
    monkeypatch.setenv("AIOKPROD_KAFKA_CACHE", "/named")
    assert cache_directory() == Path("/named")


def test_a_jar_whose_checksum_is_wrong_is_an_error_of_maven(tool: Tool, tmp_path: Path) -> None:
    tool("mvn", GOOD_MAVEN)
    kafka_classpath("9.9.9")
    assert "-C" in (tmp_path / "count.words").read_text().split()  # --strict-checksums


def test_jars_are_fetched_once_by_all_callers(tool: Tool, tmp_path: Path) -> None:
    tool("mvn", GOOD_MAVEN)
    with ThreadPoolExecutor(4) as threads:
        paths = list(threads.map(kafka_classpath, ["9.9.9"] * 4))
    assert paths == [str(tmp_path / "cache" / "9.9.9" / "*")] * 4
    assert (tmp_path / "cache" / "9.9.9" / "kafka-9.9.9.jar").exists()
    assert (tmp_path / "count").read_text() == "run\n"


def test_a_failed_fetch_leaves_nothing_and_shows_what_maven_said(tool: Tool, tmp_path: Path) -> None:
    tool("mvn", FAILING_MAVEN)
    with pytest.raises(KafkaClusterError, match=r"could not fetch Kafka 9\.9\.9:\nno such version"):
        kafka_classpath("9.9.9")
    assert not (tmp_path / "cache" / "9.9.9").exists()


def test_missing_programs_are_named_with_what_to_install(tool: Tool) -> None:
    with pytest.raises(KafkaClusterError, match=r"no mvn found.*install Maven"):
        kafka_classpath("9.9.9")
    with pytest.raises(KafkaClusterError, match=r"no java found.*install a Java runtime"):
        find_java()


def test_the_java_of_java_home_comes_first(tool: Tool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool("java", "#!/bin/sh\n")
    assert find_java() == str(tmp_path / "bin" / "java")
    home = tmp_path / "jdk"
    (home / "bin").mkdir(parents=True)
    monkeypatch.setenv("JAVA_HOME", str(home))
    assert find_java() == str(tmp_path / "bin" / "java")
    (home / "bin" / "java").touch()
    assert find_java() == str(home / "bin" / "java")


def test_processes_can_run_with_java_and_either_maven_or_the_jars(tool: Tool, tmp_path: Path) -> None:
    assert not can_run_processes("9.9.9")
    tool("java", "#!/bin/sh\n")
    assert not can_run_processes("9.9.9")
    (tmp_path / "cache" / "9.9.9").mkdir(parents=True)
    assert can_run_processes("9.9.9")
    assert not can_run_processes("9.9.8")
    tool("mvn", GOOD_MAVEN)
    assert can_run_processes("9.9.8")
