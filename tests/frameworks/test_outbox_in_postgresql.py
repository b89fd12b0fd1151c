"""docs/exactly_once.md: the outbox in PostgreSQL, its table and query on a real server, with writers that overtake each other.

The server is a process of this test on a socket of its own directory; it needs PostgreSQL 13 or later (Debian: `postgresql`).
"""

from __future__ import annotations

import os
import pwd
import random
import re
import shutil
import signal
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

PAGE = Path(__file__).resolve().parents[2] / "docs" / "exactly_once.md"
USER = "postgres"  # a server does not run as root; Debian's package has this user
WRITERS, TRANSACTIONS = 6, 25
POSITION = tuple[str, str]
START: POSITION = ("0", "0")


def binaries() -> Path | None:
    found = [Path(path).parent for path in [shutil.which("initdb")] if path is not None]
    found += sorted(Path("/usr/lib/postgresql").glob("*/bin"))
    return found[-1] if found else None


BINARIES = binaries()
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        BINARIES is None and not os.environ.get("AIOKPROD_REQUIRE_POSTGRES"),
        reason="PostgreSQL is not installed; AIOKPROD_REQUIRE_POSTGRES=1 makes this an error",
    ),
]


def blocks() -> list[str]:
    """Return the SQL of the page: the table, the query."""
    section = PAGE.read_text(encoding="utf-8").partition("## An outbox in PostgreSQL\n")[2].partition("\n## ")[0]
    table, query = re.findall(r"```(?:postgre)?sql\n(.*?)```", section, re.DOTALL)
    return [table, query]


class Session:
    """One psql: statements go in, rows come out."""

    def __init__(self, folder: Path) -> None:
        command = [
            "psql",
            "--no-psqlrc",
            "-qAtX",
            "-v",
            "ON_ERROR_STOP=1",
            "-h",
            str(folder),
            "-U",
            USER,
            "-d",
            "postgres",
        ]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def run(self, statement: str) -> list[list[str]]:
        """Run it, and return its rows."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(f"{statement}\n;\n\\echo -- done\n")
        self._process.stdin.flush()
        rows: list[list[str]] = []
        for line in self._process.stdout:
            if line == "-- done\n":
                return rows
            if line.strip():
                rows.append(line.rstrip("\n").split("|"))
        raise AssertionError(f"psql has ended: {statement}")

    def close(self) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(10)
        self._process.stdout.close()


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """Return the directory in which a server listens."""
    assert BINARIES is not None, "PostgreSQL is required and not installed"
    place = Path(tempfile.mkdtemp(prefix="aiokprod-pg-"))
    options: dict[str, str] = {}
    if os.geteuid() == 0:
        os.chown(place, pwd.getpwnam(USER).pw_uid, -1)
        options["user"] = USER
    data = place / "data"
    initdb = [str(BINARIES / "initdb"), "-D", str(data), "-U", USER, "-A", "trust", "--no-sync"]
    subprocess.run(initdb, check=True, stdout=subprocess.DEVNULL, cwd=place, **options)  # type: ignore[call-overload]
    command = [
        str(BINARIES / "postgres"),
        "-D",
        str(data),
        "-k",
        str(place),
        "-c",
        "listen_addresses=",
        "-c",
        "fsync=off",
    ]
    server = subprocess.Popen(command, cwd=place, stderr=subprocess.PIPE, text=True, **options)  # type: ignore[call-overload]
    assert server.stderr is not None
    said: list[str] = []
    for line in server.stderr:
        said.append(line)
        if "ready to accept connections" in line:
            break
    else:
        pytest.fail("".join(said))
    drain = threading.Thread(target=server.stderr.read, daemon=True)
    drain.start()
    try:
        yield place
    finally:
        server.send_signal(signal.SIGINT)  # ends sessions that a failed test left; SIGTERM waits for them
        server.wait(30)
        drain.join()
        server.stderr.close()
        shutil.rmtree(place)


@pytest.fixture
def reader(folder: Path) -> Iterator[Session]:
    session = Session(folder)
    session.run("DROP TABLE IF EXISTS outbox")
    for statement in blocks()[0].split(";"):
        if statement.strip():
            session.run(statement)
    yield session
    session.close()


def query_of(text: str, position: POSITION) -> str:
    """Return the query of the page behind this position."""
    xid, identity = position
    assert {"$1", "$2"} <= set(re.findall(r"\$\d", text))
    return text.replace("$1", f"'{xid}'").replace("$2", identity)


def rows_after(session: Session, text: str, position: POSITION) -> tuple[list[str], POSITION]:
    """Return the values behind the position, and the next position."""
    rows = session.run(query_of(text, position))
    values = [bytes.fromhex(value.removeprefix(r"\x")).decode() for *_, value in rows]
    return values, (rows[-1][0], rows[-1][1]) if rows else position


def insert(value: str) -> str:
    return f"INSERT INTO outbox (topic, value) VALUES ('orders', '{value}')"


def test_a_row_that_is_committed_late_is_not_passed_over(folder: Path, reader: Session) -> None:
    query = blocks()[1]
    early, late = Session(folder), Session(folder)
    late.run("BEGIN")
    late.run(insert("first"))  # has the lower id, and is committed after the other
    early.run(insert("second"))
    values, position = rows_after(reader, query, START)
    assert values == []
    late.run("COMMIT")
    values, position = rows_after(reader, query, position)
    assert values == ["first", "second"]
    assert rows_after(reader, query, position) == ([], position)
    early.close()
    late.close()


def relayed(folder: Path, reader: Session, query: str) -> tuple[list[str], set[str]]:
    """Return what a relay reads while writers are at work, in its order, and what they have committed."""
    committed: set[str] = set()
    done = threading.Event()

    def write(writer: int) -> None:
        draw = random.Random(writer)
        session = Session(folder)
        for number in range(TRANSACTIONS):
            mine = [f"{writer}-{number}-{index}" for index in range(draw.choice([1, 1, 3]))]
            session.run("BEGIN")
            for value in mine:
                session.run(insert(value))
                session.run(f"SELECT pg_sleep({draw.choice([0, 0, 0.002, 0.02])})")
            if draw.random() < 0.2:
                session.run("ROLLBACK")
            else:
                session.run("COMMIT")
                committed.update(mine)
        session.close()

    writers = [threading.Thread(target=write, args=(number,)) for number in range(WRITERS)]

    def wait() -> None:
        for writer in writers:
            writer.join()
        done.set()

    for writer in writers:
        writer.start()
    waiting = threading.Thread(target=wait)
    waiting.start()
    read: list[str] = []
    position = START
    is_last = False
    while not is_last:
        is_last = done.is_set()
        values, position = rows_after(reader, query, position)
        read += values
    waiting.join()
    return read, committed


def test_each_committed_row_is_read_once_and_those_of_a_transaction_together(folder: Path, reader: Session) -> None:
    read, committed = relayed(folder, reader, blocks()[1])
    assert sorted(read) == sorted(committed)
    assert len(committed) > WRITERS * TRANSACTIONS / 2
    groups = [value.rpartition("-")[0] for value in read]
    changes = sum(before != after for before, after in pairwise(groups))
    assert changes == len(set(groups)) - 1, "no other row stands between those of a transaction"


def test_without_the_oldest_running_transaction_rows_are_lost(folder: Path, reader: Session) -> None:
    naive = re.sub(r" AND xid < \S+\(\S+\(\)\)", "", blocks()[1])
    assert naive != blocks()[1]
    naive = naive.replace("(xid, id) >", "id > 0 AND (xid, id) >")
    read, committed = relayed(folder, reader, naive)
    assert set(read) < committed
