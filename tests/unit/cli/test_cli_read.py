"""`aiokprod read` and `tail`."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from cli_runs import in_background, objects, ok, run, write

from aiokprod import Producer
from aiokprod.testing import MockCluster


@pytest.fixture
def cluster() -> Iterator[MockCluster]:
    with MockCluster(1, auto_create_topics=False) as started:
        started.create_topic("t", partitions=2)
        yield started


def lines(cluster: MockCluster, *arguments: str) -> list[str]:
    return ok(cluster, "read", "t", *arguments).splitlines()


def test_a_record_is_a_line_whatever_is_in_it(cluster: MockCluster) -> None:
    write(cluster, "t", [b"plain", b"two\nlines", b"\x1b[31m\xff", None, b"\\"], partition=0)
    assert lines(cluster) == ["plain", "two\\nlines", "\\x1b[31m\\xff", "\\N", "\\\\"]
    assert lines(cluster, "--hex")[:2] == ["706c61696e", "74776f0a6c696e6573"]
    assert run(cluster, "read", "t", "--raw").stdout_bytes == b"plain\ntwo\nlines\n\x1b[31m\xff\n\n\\\n"


def test_key_headers_and_place_are_shown_if_they_are_asked_for(cluster: MockCluster) -> None:
    write(cluster, "t", [b"v"], key=b"k", headers=[("a", b"1"), ("b", None)], partition=1, timestamp_ms=1_000)
    assert lines(cluster, "-k") == ["k\tv"]
    assert lines(cluster, "-k", "-H", "--separator", "|") == ["k|a=1,b=\\N|v"]
    assert lines(cluster, "-k", "--separator", r"\t\\\x7c") == ["k\t\\|v"]  # as a shell passes it on
    assert lines(cluster, "-k", "--separator", "") == ["kv"]
    assert lines(cluster, "-v") == ["t-1@0\t1970-01-01T00:00:01.000Z\tv"]
    [found] = objects(ok(cluster, "read", "t", "--json"))
    assert found == {
        "topic": "t", "partition": 1, "offset": 0, "timestamp": 1_000, "key": "k", "value": "v",
        "headers": [["a", "1"], ["b", None]],
    }  # fmt: skip


def test_partitions_are_merged_by_time(cluster: MockCluster) -> None:
    for number in range(6):
        write(cluster, "t", [b"%d" % number], partition=number % 2, timestamp_ms=1_000 * (number + 1))
    assert lines(cluster) == ["0", "1", "2", "3", "4", "5"]
    assert lines(cluster, "-p", "1") == ["1", "3", "5"]
    assert lines(cluster, "-n", "3") == ["0", "1", "2"]


def test_it_begins_and_ends_where_it_is_told(cluster: MockCluster) -> None:
    for number in range(6):
        write(cluster, "t", [b"%d" % number], partition=0, timestamp_ms=1_000 * (number + 1))
    at = ("-p", "0")
    assert lines(cluster, *at, "--from", "4") == ["4", "5"]
    assert lines(cluster, *at, "--from", "-2") == ["4", "5"]
    assert lines(cluster, *at, "--from", "@3500") == ["3", "4", "5"]
    assert lines(cluster, *at, "--to", "2") == ["0", "1"]
    assert lines(cluster, *at, "--from", "1", "--to", "@4000") == ["1", "2"]
    assert lines(cluster, *at, "--from", "10m") == []
    assert lines(cluster, *at, "--from", "99") == []
    assert lines(cluster, *at, "--from", "end") == []


def test_what_the_log_does_not_hold_any_more_is_told(cluster: MockCluster) -> None:
    write(cluster, "t", [b"0", b"1", b"2"], partition=0)
    cluster.delete_records("t", 0, 2)
    done = run(cluster, "read", "t", "--from", "0", "-p", "0")
    assert (done.exit_code, done.stdout) == (0, "2\n")
    assert "earlier records are gone: t-0 begins at 2" in done.stderr
    assert run(cluster, "read", "t").stderr == ""


def test_filters_must_all_match(cluster: MockCluster) -> None:
    write(cluster, "t", [b"apple"], key=b"1", headers=[("kind", b"fruit")], partition=0)
    write(cluster, "t", [b"beet"], key=b"2", headers=[("kind", b"root"), ("old", None)], partition=0)
    write(cluster, "t", [None], partition=0)
    assert lines(cluster, "--grep", "^b") == ["beet"]
    assert lines(cluster, "--grep-key", "[12]") == ["apple", "beet"]
    assert lines(cluster, "--header", "kind=fruit") == ["apple"]
    assert lines(cluster, "--header", "kind", "--header", "old") == ["beet"]
    assert lines(cluster, "--header", "kind=fruit", "--grep", "beet") == []
    assert lines(cluster, "--grep", "e", "-n", "1") == ["apple"]


def test_fewer_records_than_were_wanted_make_the_status_1(cluster: MockCluster) -> None:
    write(cluster, "t", [b"a"])
    done = run(cluster, "read", "t", "-n", "2")
    assert (done.exit_code, done.stdout) == (1, "a\n")


def test_read_committed_leaves_out_what_was_not_committed(cluster: MockCluster) -> None:
    async def transact() -> None:
        async with Producer(cluster.bootstrap_servers, transactional_id="x") as producer:
            for value, is_kept in ((b"aborted", False), (b"committed", True)):
                producer.begin_transaction()
                await producer.send("t", value, partition=0)
                await (producer.commit_transaction() if is_kept else producer.abort_transaction())

    asyncio.run(transact())
    assert lines(cluster) == ["aborted", "committed"]
    assert lines(cluster, "--read-committed") == ["committed"]


def test_tail_prints_what_comes_until_it_has_enough(cluster: MockCluster) -> None:
    write(cluster, "t", [b"old"], partition=0)

    def come() -> None:
        for number in range(3):  # each after the reader has looked at the ends once more
            cluster.wait_until_seen("ListOffsets", cluster.requests_seen("ListOffsets") + 4)
            write(cluster, "t", [b"new %d" % number], partition=number % 2)

    thread = in_background(come)
    done = run(cluster, "tail", "t", "-n", "3")
    thread.join(10)
    assert (done.exit_code, done.stdout.splitlines()) == (0, ["new 0", "new 1", "new 2"])


def test_tail_begins_earlier_if_it_is_told(cluster: MockCluster) -> None:
    write(cluster, "t", [b"0", b"1", b"2"], partition=0)
    assert ok(cluster, "tail", "t", "--from", "-2", "-n", "2").splitlines() == ["1", "2"]


def test_tail_reads_a_topic_that_was_made_again(cluster: MockCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aiokprod.cli.common.reading.LOOKS", 2)
    write(cluster, "t", [b"old"] * 5, partition=0)

    def make_again() -> None:
        cluster.wait_until_seen("ListOffsets", 6)
        cluster.recreate_topic("t")
        write(cluster, "t", [b"new"], partition=0)

    thread = in_background(make_again)
    done = run(cluster, "tail", "t", "-n", "1")
    thread.join(10)
    assert (done.exit_code, done.stdout) == (0, "new\n")
    assert "t-0 is shorter than it was" in done.stderr


def test_a_leader_that_lags_for_a_moment_makes_no_record_come_twice(cluster: MockCluster) -> None:
    write(cluster, "t", [b"0", b"1"], partition=0)
    looks = 0

    def lag(answer: Any, version: int) -> Any:
        nonlocal looks
        looks += 1
        if 12 > looks > 8:
            for topic in answer.topics:
                for partition in topic.partitions:
                    partition.offset = min(partition.offset, 1)
        return answer

    cluster.rewrite_answer("ListOffsets", lag, times=None)

    def come() -> None:
        cluster.wait_until_seen("ListOffsets", 20)
        write(cluster, "t", [b"2"], partition=0)

    thread = in_background(come)
    assert ok(cluster, "tail", "t", "-p", "0", "--from", "0", "-n", "3").splitlines() == ["0", "1", "2"]
    thread.join(10)
    assert looks >= 12


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("read", "missing"), "topic 'missing' cannot be used: UNKNOWN_TOPIC_OR_PARTITION"),
        (("read", "no spaces"), "topic"),
        (("read", "t", "-p", "9"), "partition 9 does not exist"),
        (("read", "t", "--from", "soon"), "'soon' is no place"),
        (("read", "t", "--grep", "["), "is no regular expression"),
        (("read", "t", "--raw", "--json"), "leave --json and --hex out"),
        (("read", "t", "--from", "10", "--to", "5"), "--from is after --to: exchange them"),
        (("read",), "Missing argument 'TOPIC...'"),
        (("read", "t", "-X", "lingr.ms=5"), "did you mean 'linger.ms'"),
        (("read", "t", "--config", "/nowhere"), "cannot be read"),
        (("read", "t", "-b", "127.0.0.1:1", "-X", "start.timeout.ms=50"), "127.0.0.1:1"),
        (("read", "t", "--nonsense"), "No such option"),
    ],
)
def test_an_error_is_one_line_and_status_2(cluster: MockCluster, arguments: tuple[str, ...], text: str) -> None:
    done = run(cluster, *arguments)
    assert (done.exit_code, done.stdout, done.stderr.count("\n")) == (2, "", 1), done.output
    assert text in done.stderr and done.stderr.startswith("aiokprod read: ")


@pytest.mark.parametrize(
    ("arguments", "status", "text"),
    [
        (("-n", "9"), 1, "3 of 9 records: t-0 ends at 3, t-1 ends at 0"),
        (("-n", "9", "--from", "end", "-p", "0"), 1, "no records: t-0 ends at 3"),
        (("-p", "0", "--from", "100"), 0, "no records: t-0 ends at 3"),
        (("-p", "1"), 0, "no records: t-1 ends at 0"),
        (("--from", "2", "--to", "2"), 0, "no records: there are no more between --from and --to"),
        (("--grep", "x"), 0, "no records: 3 do not match --grep"),
        (("-n", "2", "--grep", "0", "--header", "a=b"), 1, "no records: 3 do not match --grep and --header a=b"),
        (("-n", "3", "--grep", "[01]"), 1, "2 of 3 records: 1 does not match --grep"),
        (("--header", "source:csv"), 0, "3 do not match --header source:csv (a header and its value are NAME=VALUE)"),
    ],
)  # fmt: skip
def test_an_end_without_the_wanted_records_is_told(
    cluster: MockCluster, arguments: tuple[str, ...], status: int, text: str
) -> None:
    write(cluster, "t", [b"0", b"1", b"2"], partition=0)
    done = run(cluster, "read", "t", *arguments)
    assert done.exit_code == status
    assert (
        done.stderr.startswith("aiokprod read: ") and done.stderr.endswith(f"{text}\n") and done.stderr.count("\n") == 1
    )


def test_nothing_is_told_if_there_are_as_many_records_as_were_wanted(cluster: MockCluster) -> None:
    write(cluster, "t", [b"0", b"1", b"2"], partition=0)
    for arguments in ((), ("-n", "2"), ("-n", "3"), ("--grep", "1"), ("--to", "2", "-n", "2")):
        done = run(cluster, "read", "t", *arguments)
        assert (done.exit_code, done.stderr) == (0, "")


@pytest.mark.parametrize("command", ["read", "tail"])
def test_an_option_that_takes_a_value_only_in_produce_is_explained(cluster: MockCluster, command: str) -> None:
    done = run(cluster, command, "t", "-H", "source=csv")
    assert (done.exit_code, done.stderr.count("\n")) == (2, 1)
    assert "-H shows the headers, and takes no value; --header source=csv selects" in done.stderr
    done = run(cluster, command, "t", "-k", "customer")
    assert (done.exit_code, done.stderr.count("\n")) == (2, 1)
    assert "topic 'customer'" in done.stderr and "--grep-key REGEX" in done.stderr
    assert "-k" not in run(cluster, command, "customer", "-k").stderr


@pytest.mark.parametrize("is_open", [True, False])
def test_records_that_read_committed_leaves_out_are_told(cluster: MockCluster, is_open: bool) -> None:
    async def leave() -> None:
        async with Producer(cluster.bootstrap_servers, transactional_id="id") as producer:
            producer.begin_transaction()
            await producer.send("t", b"v", partition=0)
            await (producer.prepare_transaction() if is_open else producer.abort_transaction())

    asyncio.run(leave())
    done = run(cluster, "read", "t", "-p", "0", "--read-committed")
    assert (done.exit_code, done.stdout) == (0, "")
    assert f"no records: t-0 ends at {1 if is_open else 2} (--read-committed leaves out" in done.stderr
