"""Every command line of every page is one that its program takes, and it is run: here or elsewhere, as `RUNS` says.

The blocks `sh` of docs/command_line.md and docs/tutorial.md are run by the tests of these pages.
"""

from __future__ import annotations

import argparse
import ast
import asyncio
import os
import re
import runpy
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, NoReturn

import click
import pytest
from child_process import Child
from page_programs import ROOT, blocks, label, pages

import aiokprod
from aiokprod import Producer
from aiokprod.audit import command as audit_command
from aiokprod.claims import Claims
from aiokprod.claims.readback import read_back
from aiokprod.cli.commands import group
from aiokprod.cli.common.help_names import HELP  # click keeps the help option that it first made for a command
from aiokprod.testing import KafkaCluster, MockCluster
from aiokprod.testing.kafka_cluster.jars import find_java, kafka_classpath

RUN: Final = ("docs/command_line.md", "docs/tutorial.md")
"""Pages whose blocks `sh` tests run: tests/unit/project/test_command_line_page.py and test_tutorial.py."""
FOLDERS: Final = ("claims", "dump")
"""What the examples of docs/audit.md have written before."""
NOT_PARSED: Final = (
    "python3 -m venv .venv",
    ". .venv/bin/activate",
    "python -m pytest -n 3 --dist loadfile",
    "python -m aiokprod.audit ...",
    "rm -rf /tmp/shop",
    "mkdir /tmp/shop",
    "export AIOKPROD_BOOTSTRAP_SERVERS=localhost:9092 PROMETHEUS_MULTIPROC_DIR=/tmp/shop",
    "gunicorn shop:app",
)
"""What has no parser here; it is run like the others."""
TOOLS: Final = {"kafka-client-metrics.sh": "org.apache.kafka.tools.ClientMetricsCommand"}
"""Scripts of Apache Kafka: the classes that they run."""
PACKAGES: Final = (
    *(
        "aiohttp",
        "aiokafka",
        "azure-identity",
        "fastapi",
        "gunicorn",
        "httpx2",
        "litestar",
        "msgspec",
        "opentelemetry-sdk",
    ),
    *("pydantic", "pytest-asyncio", "starlette", "uvicorn"),
    *("aws-msk-iam-sasl-signer-python>=1.0.2", "confluent-kafka"),
    *("confluent-kafka[avro,schemaregistry]", "confluent-kafka[protobuf,schemaregistry]"),
)
"""What examples of the pages need besides aiokprod."""
KAFKA: Final = "4.3.1"
LIMIT_S: Final = 60.0
RUN_LIMIT_S: Final = 900.0
PROJECT: Final[dict[str, Any]] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


class TakenError(BaseException):
    """The command line is taken; the command itself is not run."""


def taken(*_: object, **__: object) -> NoReturn:
    raise TakenError


def programs() -> tuple[str, ...]:
    """Return the first words of commands that are also looked for in blocks without a language."""
    return (*CHECKS, "python", "gunicorn", "pip")


def command_lines() -> list[tuple[str, str]]:
    """Return each command of each page, with the page."""
    found: list[tuple[str, str]] = []
    for page in pages():
        for block in blocks(page):
            language = block.language
            if language not in ("", "sh") or (language == "sh" and label(page) in RUN):
                continue
            for line in block.text.replace("\\\n", " ").splitlines():
                for text in re.sub(r"\s+#.*|\s{3,}the same$", "", line.strip()).split(" && "):
                    each = re.sub(r"\s+", " ", text.removeprefix(".venv/bin/"))
                    if each and (language == "sh" or each.partition(" ")[0] in programs()):
                        found.append((label(page), each))
    return found


# ---------------------------------------------------------------------- what takes a command line
def aiokprod_takes(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    if words[0] == "audit":  # click passes its words on, whatever they are
        monkeypatch.setattr(audit_command, "_audited", taken)
        with pytest.raises(TakenError):
            audit_command.main(words[1:], "aiokprod audit")
        return
    command: click.Command = group("0", "version")
    while isinstance(command, click.Group) and words[0] != "--version":
        found = command.get_command(click.Context(command, **HELP), words.pop(0))
        assert found is not None
        command = found
    if not isinstance(command, click.Group):
        command.make_context(command.name, words)


def pip_takes(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that the project has the extras and the dependency groups, and that the other packages are listed here."""
    assert words[0] == "install"
    extras = {
        extra
        for word in words
        if (match := re.fullmatch(r"(?:\.|aiokprod)\[(.*)\]", word))
        for extra in match[1].split(",")
    }
    groups = {words[index + 1] for index, word in enumerate(words) if word == "--group"}
    assert extras <= PROJECT["project"]["optional-dependencies"].keys()
    assert groups <= PROJECT["dependency-groups"].keys()
    rest = [word for word in words[1:] if not re.match(r"\.|aiokprod\[", word) and word not in groups]
    assert set(rest) <= {"-q", "-U", "-e", "--group", "pip", *PACKAGES}


def python_takes(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Run a script of the repository up to the point where its parser has taken the words."""
    parse = argparse.ArgumentParser.parse_args

    def parse_and_stop(parser: argparse.ArgumentParser) -> NoReturn:
        parse(parser)
        raise TakenError

    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", parse_and_stop)
    monkeypatch.setattr(sys, "argv", words)
    monkeypatch.setattr(sys, "path", [str((ROOT / words[0]).parent), *sys.path])
    with pytest.raises(TakenError):
        runpy.run_path(str(ROOT / words[0]), run_name="__main__")


def nox_takes(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that there is such a session, and that it (or the parser of its script) takes the words behind `--`."""
    if words == ["-l"]:
        return
    assert words[0] == "-s"
    (session,) = [
        each
        for each in ast.parse((ROOT / "noxfile.py").read_text(encoding="utf-8")).body
        if isinstance(each, ast.FunctionDef) and each.name == words[1]
    ]
    if len(words) == 2:
        return
    assert words[2] == "--" and "session.posargs" in ast.unparse(session)
    match = re.search(r"session\.run\('python', '([\w/.]+)', \*session\.posargs\)", ast.unparse(session))
    if match is not None:
        python_takes([match[1], *words[3:]], monkeypatch)


def kafka_takes(words: list[str], main: str) -> None:
    """Check that the options are in the help of the tool."""
    command = [
        find_java(),
        "-XX:TieredStopAtLevel=1",
        "-XX:+UseSerialGC",
        "-Xmx128m",
        "-cp",
        kafka_classpath(KAFKA),
        main,
    ]
    done = subprocess.run([*command, "--help"], capture_output=True, text=True, timeout=LIMIT_S, check=False)
    known = set(re.findall(r"^(--[\w-]+)", done.stdout + done.stderr, re.MULTILINE))
    assert len(known) > 5, done.stdout + done.stderr
    assert {word for word in words if word.startswith("--")} <= known


CHECKS: Final[dict[str, Callable[[list[str], pytest.MonkeyPatch], None]]] = {
    "aiokprod": aiokprod_takes,
    "pip": pip_takes,
    "python": python_takes,
    "nox": nox_takes,
}


def checked(of_tools: bool) -> list[Any]:
    found = [(page, text) for page, text in command_lines() if text not in NOT_PARSED]
    return [
        pytest.param(text, id=f"{page}: {text[:60]}") for page, text in found if (text.split()[0] in TOOLS) == of_tools
    ]


@pytest.mark.parametrize("line", checked(of_tools=False))
def test_a_command_line_of_a_page_is_valid(line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for folder in FOLDERS:
        (tmp_path / folder).mkdir()
    monkeypatch.chdir(tmp_path)
    program, *words = shlex.split(line)
    CHECKS[program](words, monkeypatch)


@pytest.mark.real
@pytest.mark.parametrize("line", checked(of_tools=True))
def test_a_command_line_of_a_tool_of_kafka_has_options_of_this_tool(line: str) -> None:
    program, *words = shlex.split(line)
    kafka_takes(words, TOOLS[program])


@pytest.mark.parametrize(
    "line",
    [
        "aiokprod audit claims/ --log dump/ --topic orders",
        "aiokprod audit claims/ --bootstrap localhost:9092 --topics orders",
        "aiokprod cluster --partitions 3",
        "nox -s soak -- --minute-s 5",
        "pip install '.[clie]'",
        "pip install -e . --group docs-too",
        "python bench/transaction_for_each_request.py --servers localhost:9092",
    ],
)
def test_a_command_line_that_its_program_does_not_take_is_found(line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    program, *words = shlex.split(line)
    with pytest.raises((AssertionError, SystemExit, click.UsageError)):
        CHECKS[program](words, monkeypatch)


def test_command_lines_are_found() -> None:
    assert len(checked(of_tools=False)) >= 20
    assert len(checked(of_tools=True)) >= 1


def test_what_is_not_parsed_is_on_a_page() -> None:
    assert set(NOT_PARSED) <= {text for _, text in command_lines()}


# ---------------------------------------------------------------------- running them
@dataclass(frozen=True)
class Run:
    """How a test runs a command line: in a folder of its own, with the ports of a cluster in memory."""

    says: str = ""
    """a pattern that is found in what it prints"""
    statuses: tuple[int, ...] = (0,)
    more: str = ""
    """words behind the line, which make it short or keep it here"""
    instead: Mapping[str, str] = field(default_factory=dict[str, str])
    """texts of the line that mean something else here"""
    in_repository: bool = False
    is_server: bool = False
    """whether it runs until Ctrl-C, once it has printed what it `says`"""


@dataclass(frozen=True)
class Elsewhere:
    """A test that runs a command line, by its file; the file that has the words (a test, or the page that it follows)."""

    by: str
    where: str
    words: str


PIP: Final = "--dry-run --no-index --no-build-isolation"
"""Nothing is installed: pip finds the extras, the groups and all that they need in the environment of the tests."""
INSTALLED: Final = Run("Would install aiokprod-|^$", more=PIP)
QUIETLY: Final = Run("^$", more=PIP)
OF_ENVIRONMENTS: Final = Elsewhere(
    "tests/pages/test_tutorial.py",
    "docs/tutorial.md",
    "\npython3 -m venv .venv && . .venv/bin/activate\npip install -q -e ",
)
OF_GUNICORN: Final = "tests/frameworks/test_prometheus_workers.py"
SERVER: Final = "--port 0 --brokers 1"
RUNS: Final[Mapping[str, Run | Elsewhere]] = {
    # Of environments. The tutorial's test makes one and installs aiokprod into it.
    "python3 -m venv .venv": OF_ENVIRONMENTS,
    ". .venv/bin/activate": OF_ENVIRONMENTS,
    'pip install -q -e ".[all]"': QUIETLY,
    "pip install -q -e '.[all]'": QUIETLY,
    "pip install -q -U pip": QUIETLY,
    "pip install -q -e . --group test": QUIETLY,
    "pip install -U pip": Run("Requirement already satisfied: pip", more=PIP),
    # The environment of the tests has not all of that group.
    "pip install -e . --group dev": Elsewhere(
        "tests/gate/change.py", "tests/gate/change.py", '"-e", str(ROOT), "--group", "dev"'
    ),
    'pip install -e ".[cli]"': INSTALLED,
    'pip install -e ".[spark]"': INSTALLED,
    # One file of the tests, and not all of them.
    "python -m pytest -n 3 --dist loadfile": Run(
        r"\d+ passed", more="-p no:cacheprovider tests/unit/test_backoff.py", in_repository=True
    ),
    # Of the command line.
    "aiokprod --version": Run(r"^aiokprod [\d.]+ \((compiled|pure Python)\)$"),
    "aiokprod cluster --topic orders -- python first.py": Elsewhere(
        "tests/unit/project/test_readme.py", "README.md", "\naiokprod cluster --topic orders -- python first.py\n"
    ),
    "aiokprod cluster --topic orders:6 --topic audit": Run("127.0.0.1:", more=SERVER, is_server=True),
    "aiokprod cluster --port 9092": Run("127.0.0.1:", instead={"--port 9092": SERVER}, is_server=True),
    "aiokprod cluster --topic orders:6 -- uvicorn app:app --reload": Run(
        "Application startup complete", instead={" -- ": f" {SERVER} -- "}, more="--port 0", is_server=True
    ),
    "aiokprod topics create orders.dead -b localhost:9092 --option max.message.bytes=3000000 --yes": Run(
        "topic 'orders.dead' is created$"
    ),
    "aiokprod demo": Run("lost 0|0 lost", more="-n 5000"),
    "aiokprod transactions list -b localhost:9092 --prefix orders- --state Ongoing": Run(r"^orders-7 +Ongoing "),
    "aiokprod transactions describe -b localhost:9092 orders-7": Run(r"^orders-7 +Ongoing .* invoices-0$"),
    "aiokprod transactions find-hanging -b localhost:9092": Run(r"^orders +0 .*4711", statuses=(1,)),
    "aiokprod transactions abort -b localhost:9092 --id orders-7 --yes": Run("^orders-7: aborted$"),
    "aiokprod transactions abort -b localhost:9092 --topic orders --partition 0 --offset 4711 --yes": Run("orders-0"),
    "aiokprod audit claims/ --log dump/ --out audit/": Run("^lost 0, duplicate 0, phantom 0, reordered 0$"),
    "aiokprod audit claims/ --bootstrap localhost:9092 --topic orders --out audit/": Run(
        "^lost 0, duplicate 0, phantom 0, reordered 0$"
    ),
    "aiokprod audit claims/ --config client.properties -X client.id=audit --topic orders --out audit/": Run(
        "^lost 0, duplicate 0, phantom 0, reordered 0$"
    ),
    "python -m aiokprod.audit ...": Run(
        "^lost 0, duplicate 0, phantom 0, reordered 0$", instead={"...": "claims/ --log dump/ --out audit/"}
    ),
    # Of the repository: what a session of nox runs, for seconds and not for minutes. A BAD verdict passes only if its one
    # complaint is `stall`.
    "nox -s soak -- --minutes 5 --seed 1 --report /tmp/soak": Run(
        r"^verdict: (good|BAD \{'stall': \d+\});",
        statuses=(0, 1),  # a turn of an event loop took too long: the machine is busy
        instead={"nox -s soak --": "python tests/soak", "--minutes 5": "--minutes 0.05", "/tmp/soak": "HERE/soak"},
        in_repository=True,
    ),
    "python bench/transaction_for_each_request.py --bootstrap localhost:9092": Run(
        r"\| pool of 4 \|", more="--clients 4 --seconds 0.1", in_repository=True
    ),
    # Of a service.
    "rm -rf /tmp/shop": Elsewhere(OF_GUNICORN, OF_GUNICORN, 'block("rm -rf /tmp/shop && '),
    "mkdir /tmp/shop": Elsewhere(OF_GUNICORN, OF_GUNICORN, '&& mkdir /tmp/shop")'),
    "export AIOKPROD_BOOTSTRAP_SERVERS=localhost:9092 PROMETHEUS_MULTIPROC_DIR=/tmp/shop": Elsewhere(
        OF_GUNICORN, OF_GUNICORN, '"PROMETHEUS_MULTIPROC_DIR": str(self.figures)'
    ),
    "gunicorn shop:app": Elsewhere(OF_GUNICORN, OF_GUNICORN, 'super().__init__(folder, "shop:app"'),
    # Of Kafka.
    "kafka-client-metrics.sh --bootstrap-server localhost:9092 --alter --name producers --interval 60000"
    " --metrics org.apache.kafka.producer.,aiokprod.producer. --match client_software_name=aiokprod": Run(
        "^Altered client metrics config for producers"
    ),
}
"""How each command line of the pages is run; those of the pages in `RUN` are run with their pages."""
SLOW: Final = ("aiokprod audit", "aiokprod demo", "python -m aiokprod.audit", "nox ", *TOOLS)
"""How lines begin that need Spark, Java or many seconds."""


class Place:
    """The surroundings of a command line: programs, files, and the cluster of the page, which is in memory."""

    def __init__(self, folder: Path, servers: str) -> None:
        self.folder, self.servers = folder, servers
        programs = folder / "bin"
        programs.mkdir()
        java = shlex.join([find_java(), "-XX:TieredStopAtLevel=1", "-Xmx128m", "-cp"])
        texts = {
            "aiokprod": f"{shlex.quote(sys.executable)} -m aiokprod",
            "python": shlex.quote(sys.executable),
            "pip": f"{shlex.quote(sys.executable)} -m pip --disable-pip-version-check",
            "uvicorn": f"{shlex.quote(sys.executable)} -m uvicorn",
            **{name: f'{java} "$CLASSES" {main}' for name, main in TOOLS.items()},
        }
        for name, text in texts.items():
            (programs / name).write_text(f'#!/bin/sh\nexec {text} "$@"\n', encoding="utf-8")
            (programs / name).chmod(0o755)
        kept = {
            name: text for name, text in os.environ.items() if not name.startswith(("AIOKPROD_B", "KAFKA_", "PIP_"))
        }
        self.environment = kept | {
            "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": str(Path(aiokprod.__file__).parents[1]),
            "PYTHONUNBUFFERED": "1",
            "SPARK_LOCAL_IP": "127.0.0.1",
        }

    def run(self, line: str, how: Run) -> str:
        """Run a line in a shell; return what it prints. It must end with the status that is expected."""
        text = line
        for old, new in how.instead.items():
            assert text.count(old) == 1, f"{line} does not have {old}"
            text = text.replace(old, new)
        text = f"{text.replace('localhost:9092', self.servers).replace('HERE', str(self.folder))} {how.more}"
        with Child(
            ["bash", "-c", f"exec {text}"],
            cwd=ROOT if how.in_repository else self.folder, env=self.environment, text=True, start_new_session=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        ) as process:  # fmt: skip
            watch = threading.Timer(RUN_LIMIT_S, os.killpg, (process.pid, signal.SIGKILL))
            watch.start()
            try:
                assert process.stdout is not None
                printed = ""
                for each in process.stdout:
                    printed += each
                    if how.is_server and re.search(how.says, printed, re.MULTILINE):
                        process.send_signal(signal.SIGINT)
                        how = replace(how, is_server=False)
                status = process.wait()
            finally:
                watch.cancel()
        assert status in how.statuses, printed
        return printed


def given_for(line: str, place: Place, cluster: MockCluster) -> None:
    """Make what a page takes for granted."""
    for topic in ("orders", "invoices"):
        cluster.create_topic(topic)
    if line.startswith("aiokprod transactions"):
        asyncio.run(leave_transactions(cluster))
    elif "audit" in line:
        asyncio.run(claim(cluster, place.folder))
        (place.folder / "client.properties").write_text(f"bootstrap.servers={cluster.bootstrap_servers}\n")
    elif "uvicorn" in line:
        (place.folder / "app.py").write_text(APPLICATION)
    elif line.startswith("pip"):
        for name in ("aiokprod", ".build"):
            shutil.copytree(ROOT / name, place.folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        for name in ("pyproject.toml", "README.md", "LICENSE"):
            shutil.copy(ROOT / name, place.folder)


async def leave_transactions(cluster: MockCluster) -> None:
    """Leave a transaction of `orders-7` open, and one of `lost` in orders-0 from offset 4711 on, which began an hour ago."""
    async with Producer(cluster.bootstrap_servers) as producer:
        await producer.send_many("orders", [b"v"] * 4_711)
    hour_ago = round(time.time() * 1_000) - 3_600_000
    for name, topic in (("orders-7", "invoices"), ("lost", "orders")):
        async with Producer(cluster.bootstrap_servers, transactional_id=name) as producer:
            producer.begin_transaction()
            await producer.send(topic, b"v", partition=0, timestamp_ms=hour_ago)
            await producer.prepare_transaction()
    cluster.lose_transaction("lost")


async def claim(cluster: MockCluster, folder: Path) -> None:
    """Send records with claims, and write the log into a dump."""
    async with Producer(cluster.bootstrap_servers, interceptors=[Claims(folder / "claims")]) as producer:
        for number in range(20):
            producer.send("orders", b"%d" % number, key=b"k")
    await read_back(cluster.bootstrap_servers, ["orders"], folder / "dump")


APPLICATION: Final = """
from fastapi import FastAPI

app = FastAPI()
"""


@pytest.fixture
def memory() -> Iterator[MockCluster]:
    with MockCluster(1) as started:
        yield started


@pytest.fixture
def place(tmp_path: Path, memory: MockCluster) -> Place:
    return Place(tmp_path, memory.bootstrap_servers)


def runs(*, of_kafka: bool) -> list[Any]:
    found = [(line, how) for line, how in RUNS.items() if isinstance(how, Run)]
    return [
        pytest.param(line, how, id=line[:70], marks=[pytest.mark.slow] * line.startswith(SLOW))
        for line, how in found
        if (line.split()[0] in TOOLS) == of_kafka
    ]


@pytest.mark.parametrize(("line", "how"), runs(of_kafka=False))
def test_a_command_line_of_a_page_runs(line: str, how: Run, place: Place, memory: MockCluster) -> None:
    given_for(line, place, memory)
    printed = place.run(line, how)
    assert re.search(how.says, printed, re.MULTILINE), printed


@pytest.mark.real
@pytest.mark.slow
@pytest.mark.parametrize(("line", "how"), runs(of_kafka=True))
def test_a_command_line_of_a_tool_of_kafka_runs(
    line: str, how: Run, tmp_path: Path, kafka_cluster: KafkaCluster
) -> None:
    place = Place(tmp_path, kafka_cluster.bootstrap_servers)
    place.environment["CLASSES"] = kafka_classpath(KAFKA)
    printed = place.run(line, how)
    assert re.search(how.says, printed, re.MULTILINE), printed


def test_every_command_line_of_every_page_is_run() -> None:
    assert {text for _, text in command_lines()} == RUNS.keys()


@pytest.mark.parametrize(
    ("line", "how"), [pytest.param(*each, id=each[0][:70]) for each in RUNS.items() if isinstance(each[1], Elsewhere)]
)
def test_a_test_that_runs_a_command_line_has_its_words(line: str, how: Elsewhere) -> None:
    assert how.words in (ROOT / how.where).read_text(encoding="utf-8")
    test = (ROOT / how.by).read_text(encoding="utf-8")
    assert how.where == how.by or how.where.rpartition("/")[2] in test, f"{how.by} does not name {how.where}"


@pytest.mark.parametrize("wrong", [Run("^never printed$"), Run(statuses=(3,)), Run(instead={"never there": ""})])
def test_a_command_line_that_does_something_else_is_found(wrong: Run, place: Place, memory: MockCluster) -> None:
    with pytest.raises(AssertionError):
        test_a_command_line_of_a_page_runs("aiokprod --version", wrong, place, memory)
