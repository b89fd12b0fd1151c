"""Workload processes: what a killed one leaves behind, and what ended by itself."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest
from book import Book
from clients import Client

pytestmark = pytest.mark.slow

NOBODY = "127.0.0.1:1"  # no broker listens there: the workload lives, and sends nothing
JOB = {"servers": NOBODY, "rate": 10, "seed": 1, "session_s": 5.0, "options": {}, "security": {}}
JOB |= {"address": "127.0.0.1"}


def wait_for(path: Path, text: bytes) -> None:
    deadline = time.monotonic() + 30.0
    while not path.exists() or text not in path.read_bytes():
        assert time.monotonic() < deadline, f"{path.name} never had {text!r}"
        threading.Event().wait(0.02)


def test_a_killed_workload_leaves_its_book_and_the_next_life_has_its_own(tmp_path: Path) -> None:
    client = Client("five", tmp_path, JOB)
    client.start()
    try:
        wait_for(client.book("five-0"), b"five-0/0")
        assert not client.has_delivered()
        client.kill()
        client.start()
        wait_for(client.book("five-1"), b"five-1/0")
        client.freeze(0.0)
    finally:
        client.end()
    assert client.lives == ["five-0", "five-1"]
    assert list(client.killed_at) == ["five-0"]
    assert [session.name for session in Book.read(client.book("five-0")).sessions] == ["five-0/0"]
    assert len(client.away) == 1


def test_a_workload_that_fails_is_not_excused_by_a_later_kill(tmp_path: Path) -> None:
    client = Client("five", tmp_path, JOB | {"options": {"acks": "seven"}})
    client.start()
    try:
        wait_for(client.log("five-0"), b"ConfigError")
        assert client.wait(30.0) == 1
        client.kill()
    finally:
        client.end()
    assert client.killed_at == {}


def test_a_client_is_under_way_when_a_record_of_its_present_life_was_acknowledged(tmp_path: Path) -> None:
    client = Client("five", tmp_path, JOB)
    client.lives.append("five-0")
    assert not client.has_delivered()
    client.book("five-0").write_bytes(b"i 0 1.0 to 0 - 10\n")
    assert not client.has_delivered()
    client.book("five-0").write_bytes(b"i 0 1.0 to 0 - 10\no 0 1.5 0 0\n")
    assert client.has_delivered()
    client.lives.append("five-1")
    assert not client.has_delivered()
