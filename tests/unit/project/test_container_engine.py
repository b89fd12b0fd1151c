"""The Docker engine and the image of Apache Kafka for machines that have neither: tests/containers/engine."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

from aiokprod.testing.kafka_cluster.properties import to_environment

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "containers" / "engine"))

import docker_engine
import kafka_image
import this_machine
from docker_engine import OwnEngine, Seen, Step, step_for
from this_machine import NotHere

ENGINE = Path(docker_engine.__file__).parent
BARE = Seen(answers=False, host="", is_root=True, has_apt=True, missing=("docker.io",))
"""A Debian container: root, apt, and no engine."""


def test_an_engine_that_answers_is_used_whatever_else_is_here() -> None:
    for host in ("", "tcp://elsewhere:2375"):
        assert (
            step_for(Seen(answers=True, host=host, is_root=False, has_apt=False, missing=("docker.io",)))
            is Step.NOTHING
        )


def test_what_is_missing_is_installed_and_what_is_there_is_started() -> None:
    assert step_for(BARE) is Step.INSTALL
    assert step_for(replace(BARE, missing=())) is Step.START
    assert step_for(replace(BARE, missing=(), has_apt=False)) is Step.START


@pytest.mark.parametrize(
    ("seen", "reason"),
    [
        (replace(BARE, is_root=False), "only root can start one"),
        (replace(BARE, is_root=False, missing=()), "only root can start one"),
        (replace(BARE, has_apt=False), r"without apt-get there is no way to install docker\.io"),
        (replace(BARE, host="unix:///none.sock"), "at DOCKER_HOST=unix:///none.sock"),
    ],
)
def test_where_there_cannot_be_one_the_reason_is_one_line(seen: Seen, reason: str) -> None:
    with pytest.raises(NotHere, match=reason) as refused:
        step_for(seen)
    assert "\n" not in str(refused.value)


# ---------------------------------------------------------------- the engine that is started here


def test_an_engine_that_ends_at_once_is_told_with_its_log(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    dockerd = programs / "dockerd"
    dockerd.write_text("#!/bin/sh\necho 'no cgroups here' >&2\nexit 3\n")
    dockerd.chmod(0o755)
    monkeypatch.setenv("PATH", str(programs), prepend=os.pathsep)
    monkeypatch.setattr(docker_engine, "answers", lambda: False)
    with pytest.raises(NotHere, match="ended with status 3") as refused:
        OwnEngine(tmp_path / "state").start()
    assert refused.value.log == "no cgroups here"


def test_a_folder_that_others_can_write_to_is_not_taken(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    folder.mkdir()
    folder.chmod(0o777)
    with pytest.raises(NotHere, match=r"was not made by this user: remove it"):
        OwnEngine(folder).start()


def test_a_process_that_has_the_number_of_an_ended_engine_is_left_alone(tmp_path: Path) -> None:
    own = OwnEngine(tmp_path)
    assert not own.stop()
    (tmp_path / "pid").write_text(str(os.getpid()))
    assert own.pid is None
    assert not own.stop()


# ---------------------------------------------------------------- the image


def properties_of(environment: dict[str, str]) -> dict[str, str]:
    """Return what the image makes of its variables."""
    awk = shutil.which("awk")
    assert awk is not None, "POSIX has an awk: install one (Debian: mawk)"
    command = [awk, "-f", str(ENGINE / "node" / "properties.awk")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    lines = done.stdout.splitlines()
    found = dict(line.split("=", 1) for line in lines)
    assert len(found) == len(lines), "a property twice"
    return found


def test_a_variable_is_a_property_with_underscores_and_hyphens() -> None:
    found = properties_of(
        {
            "KAFKA_NODE_ID": "7",
            "KAFKA_A__B_C": "one",
            "KAFKA_A___B_C": "two",
            "KAFKA_A____B": "three",
            "KAFKA_LISTENERS": "PLAINTEXT://:9092",
            "PATH": "/bin",
            "CLUSTER_ID": "x",
        }
    )
    assert found == {
        "node.id": "7",
        "a_b.c": "one",
        "a-b.c": "two",
        "a-.b": "three",
        "listeners": "PLAINTEXT://:9092",
        "log.dirs": "/var/lib/kafka/data",
    }


def test_the_image_reads_what_our_clusters_write() -> None:
    properties = {"a.b": "1", "listener.name.sasl_ssl.scram-sha-256.x": "y=z, w", "log.dirs": "/elsewhere"}
    assert properties_of(to_environment(properties)) == properties


def test_a_value_of_several_lines_stays_one_property() -> None:
    assert properties_of({"KAFKA_X": "a\nb.c=d"})["x"] == "a\\nb.c=d"


@pytest.mark.parametrize("name", ["KAFKA_HEAP_OPTS", "KAFKA_OPTS", "KAFKA_LOG4J_ROOT_LOGLEVEL", "KAFKA_JMX_OPTS"])
def test_what_is_meant_for_the_jvm_is_no_property(name: str) -> None:
    assert set(properties_of({name: "-Xmx1g", "KAFKA_NODE_ID": "1"})) == {"node.id", "log.dirs"}


def test_without_variables_it_is_one_node_of_both_roles_on_9092() -> None:
    for environment in ({}, {"KAFKA_HEAP_OPTS": "-Xmx1g"}, {"CLUSTER_ID": "x"}):
        found = properties_of(environment)
        assert found["process.roles"] == "broker,controller"
        assert found["listeners"] == "PLAINTEXT://:9092,CONTROLLER://:9093"
        assert {found[name] for name in found if name.endswith("replication.factor")} == {"1"}


def test_the_version_is_the_one_that_test_clusters_run() -> None:
    pom = kafka_image.POM.read_text()
    assert f"<kafka.version>{kafka_image.default_version(pom)}<" in pom
    with pytest.raises(ValueError, match=r"has no property kafka\.version"):
        kafka_image.default_version("<project/>")


@pytest.mark.parametrize(
    ("version", "reason"), [("2.8.2", "needs ZooKeeper"), ("latest", "write it as 4.3.1"), ("4.3", "write it as 4.3.1")]
)
def test_a_version_without_an_image_is_refused(version: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        kafka_image.made(version)
    kafka_image.check_version("3.9.1")


def test_libraries_are_read_from_what_ldd_prints() -> None:
    listing = """
        linux-vdso.so.1 (0x00007ffd4d3e0000)
        libz.so.1 => /lib/x86_64-linux-gnu/libz.so.1 (0x00007f21a0a1b000)
        libX11.so.6 => not found
        /lib64/ld-linux-x86-64.so.2 (0x00007f21a0a5f000)
    """
    assert kafka_image.libraries_in(listing) == {"/lib/x86_64-linux-gnu/libz.so.1", "/lib64/ld-linux-x86-64.so.2"}


def test_an_image_of_this_recipe_is_not_made_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    def is_not_called(*_: object) -> None:
        raise AssertionError("an image was made")

    monkeypatch.setattr(kafka_image, "says", lambda _command: kafka_image.recipe() + "\n")
    monkeypatch.setattr(kafka_image, "_make", is_not_called)
    assert kafka_image.made("4.3.1") == "aiokprod-test/kafka:4.3.1"


def test_an_image_of_another_recipe_is_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []
    monkeypatch.setattr(kafka_image, "says", lambda _command: "0" * 64)
    monkeypatch.setattr(kafka_image, "_check_programs", lambda: None)
    monkeypatch.setattr(kafka_image, "_make", lambda tag, _version, _folder: made.append(tag))
    assert [kafka_image.made("4.3.1")] == made


def test_an_image_without_a_jdk_cannot_be_had(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka_image, "says", lambda _command: None)
    monkeypatch.setattr(kafka_image, "has", lambda program: program != "jlink")
    with pytest.raises(NotHere, match=r"needs a Java JDK \(jlink in PATH\)"):
        kafka_image.made("4.3.1")


# ---------------------------------------------------------------- the command


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    spec = importlib.util.spec_from_file_location("container_engine_command", ENGINE / "__main__.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_what_cannot_be_had_has_a_status_of_its_own_and_its_reason_last(
    command: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse() -> str:
        raise NotHere("no engine, because", "line 1\nline 2")

    monkeypatch.setattr(docker_engine, "up", refuse)
    assert command.main(["up"]) == 77
    out, err = capsys.readouterr()
    assert (out, err.splitlines()) == ("", ["line 1", "line 2", "no engine, because"])


def test_what_failed_has_status_one(
    command: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command.main(["image", "2.8.2"]) == 1
    assert "needs ZooKeeper" in capsys.readouterr().err
    monkeypatch.setattr(kafka_image, "made", lambda version: f"tag of {version}")
    assert command.main(["image"]) == 0
    assert capsys.readouterr().out == "tag of None\n"


def test_it_needs_nothing_but_python() -> None:
    """The gate starts it before anything is installed."""
    isolated = [sys.executable, "-I", "-S", str(ENGINE), "--help"]
    done = subprocess.run(isolated, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "up" in done.stdout


# ---------------------------------------------------------------- apt


@pytest.mark.parametrize(("answers", "calls"), [([0], 1), ([100, 0, 0], 3)])
def test_packages_are_installed_with_a_new_list_if_the_old_one_has_them_not(
    monkeypatch: pytest.MonkeyPatch, answers: list[int], calls: int
) -> None:
    commands = apt_that_answers(monkeypatch, answers)
    this_machine.install(["docker.io"])
    assert len(commands) == calls
    assert commands[-1][-1] == "docker.io"


def test_an_apt_that_fails_is_told_with_its_log(monkeypatch: pytest.MonkeyPatch) -> None:
    apt_that_answers(monkeypatch, [100, 0, 100])
    with pytest.raises(NotHere, match=r"apt could not install docker\.io") as refused:
        this_machine.install(["docker.io"])
    assert refused.value.log == "status 100"


def apt_that_answers(monkeypatch: pytest.MonkeyPatch, statuses: list[int]) -> list[list[str]]:
    """Let apt-get end with these statuses, one after the other; return the commands that come."""
    commands: list[list[str]] = []

    def run(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        commands.append(command)
        status = statuses[len(commands) - 1]
        return subprocess.CompletedProcess(command, status, stdout=f"status {status}\n")

    monkeypatch.setattr(this_machine.subprocess, "run", run)
    return commands
