"""`aiokprod produce`, and the way from `read --json` back to it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from cli_runs import objects, ok, run
from hypothesis import given, settings
from hypothesis import strategies as st

from aiokprod import Producer
from aiokprod.cli.produce import Pace
from aiokprod.testing import MockCluster
from aiokprod.testing.virtual import run_virtual


@pytest.fixture
def cluster() -> Iterator[MockCluster]:
    with MockCluster(1) as started:
        started.create_topic("t", partitions=2)
        yield started


def contents(cluster: MockCluster, topic: str = "t") -> list[tuple[bytes | None, bytes | None]]:
    return [(record.key, record.value) for record in cluster.records(topic)]


def test_lines_of_standard_input_are_values(cluster: MockCluster) -> None:
    done = run(cluster, "produce", "t", "-p", "1", input=b"one\r\ntwo\n\n\xff\x00\nlast")
    assert (done.exit_code, done.stdout) == (0, "")
    assert done.stderr == "aiokprod produce: 5 acknowledged, 0 failed\n"
    assert contents(cluster) == [(None, b"one"), (None, b"two"), (None, b""), (None, b"\xff\x00"), (None, b"last")]
    assert {record.partition for record in cluster.records("t")} == {1}


def test_files_come_one_after_another(cluster: MockCluster, tmp_path: Path) -> None:
    for name, text in (("a", "1\n2"), ("b", "3\n"), ("c", "")):
        (tmp_path / name).write_text(text)
    names = [word for name in "abc" for word in ("-f", str(tmp_path / name))]
    ok(cluster, "produce", "t", *names, "-f", "-", "-p", "0", input="4\n")
    assert [value for _, value in contents(cluster)] == [b"1", b"2", b"3", b"4"]
    ok(cluster, "produce", "whole", "--whole", *names)
    assert sorted(value or b"" for _, value in contents(cluster, "whole")) == [b"", b"1\n2", b"3\n"]


def test_keys_and_headers(cluster: MockCluster) -> None:
    ok(cluster, "produce", "t", "-K", ":", "-H", "a=1", "-H", "b=x=y", "-p", "0", input="k:v\n")
    ok(cluster, "produce", "t", "-k", "for all", "--null", "NULL", "-p", "0", input="v\nNULL\n")
    assert contents(cluster) == [(b"k", b"v"), (b"for all", b"v"), (b"for all", None)]
    assert cluster.records("t")[0].headers == (("a", b"1"), ("b", b"x=y"))


def test_rows_of_csv(cluster: MockCluster) -> None:
    ok(cluster, "produce", "t", "--csv", "--key-field", "id", "-p", "0", input='id,name\n1,"a, b"\n2,c\n')
    assert [(key, json.loads(value or b"")) for key, value in contents(cluster)] == [
        (b"1", {"id": "1", "name": "a, b"}), (b"2", {"id": "2", "name": "c"}),
    ]  # fmt: skip


def test_lines_of_json_name_their_topic_and_all_else(cluster: MockCluster) -> None:
    line = {"topic": "t", "partition": 1, "timestamp": 5_000, "key": "k", "value": "v", "headers": [["h", None]]}
    ok(cluster, "produce", "--json", input=json.dumps(line) + "\n")
    [record] = cluster.records("t", 1)
    assert (record.key, record.value, record.timestamp_ms, record.headers) == (b"k", b"v", 5_000, (("h", None),))
    ok(cluster, "produce", "other", "--json", "--repartition", input=json.dumps(line) + "\n")
    assert contents(cluster, "other") == [(b"k", b"v")]


BYTES = st.none() | st.binary(max_size=20) | st.text(max_size=8).map(lambda text: text.encode("utf-8", "replace"))
NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
RECORD = st.tuples(
    BYTES, BYTES, st.lists(st.tuples(NAMES, BYTES), max_size=3), st.integers(0, 1), st.integers(1, 10**13)
)


@pytest.fixture(scope="module")
def long_lived() -> Iterator[MockCluster]:
    with MockCluster(1, topic_defaults={"message.timestamp.after.max.ms": 2**62}) as started:
        yield started


@settings(max_examples=10)
@given(records=st.lists(RECORD, min_size=1, max_size=60))
def test_what_read_writes_in_json_produce_sends_as_it_was(
    long_lived: MockCluster, records: list[tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]], int, int]]
) -> None:
    cluster = long_lived
    for name in ("from", "to"):
        if name in cluster.topics:
            cluster.delete_topic(name)
        cluster.create_topic(name, partitions=2)

    async def send() -> None:
        async with Producer(cluster.bootstrap_servers) as producer:
            for key, value, headers, partition, timestamp_ms in records:
                producer.send("from", value, key, headers=headers, partition=partition, timestamp_ms=timestamp_ms)

    asyncio.run(send())
    lines = ok(cluster, "read", "from", "--json")
    assert len(lines.splitlines()) == len(records)
    ok(cluster, "produce", "to", "--json", input=lines)

    def stored(topic: str) -> list[object]:
        return [
            (each.partition, each.key, each.value, each.headers, each.timestamp_ms) for each in cluster.records(topic)
        ]

    assert stored("to") == stored("from")


def test_what_failed_is_written_so_that_it_can_be_sent_again(cluster: MockCluster, tmp_path: Path) -> None:
    file = tmp_path / "failed.jsonl"
    cluster.fail_next("Produce", "POLICY_VIOLATION", times=2)
    lines = "".join(f"k{number}:v{number}\n" for number in range(3))
    done = run(cluster, "produce", "t", "-K", ":", "-p", "0", "-H", "h=1", "--failed", str(file), input=lines)
    assert (done.exit_code, done.stdout) == (1, "")
    assert "0 acknowledged, 3 failed" in done.stderr and "POLICY_VIOLATION" in done.stderr
    [first, *_] = objects(file.read_text())
    assert (first["key"], first["value"], first["partition"], first["may_be_in_log"]) == ("k0", "v0", 0, False)
    cluster.clear_faults()
    again = run(cluster, "produce", "--json", "-f", str(file))
    assert again.exit_code == 0 and "3 acknowledged, 0 failed" in again.stderr
    assert contents(cluster) == [(b"k%d" % number, b"v%d" % number) for number in range(3)]
    assert cluster.records("t")[0].headers == (("h", b"1"),)


def test_the_file_of_failed_records_is_added_to_and_never_the_one_that_is_read(
    cluster: MockCluster, tmp_path: Path
) -> None:
    file = tmp_path / "failed.jsonl"
    file.write_text('{"value": "kept"}\n')
    done = run(cluster, "produce", "t", "--json", "-f", str(file), "--failed", str(file))
    assert done.exit_code == 2 and "--failed is a file that is read" in done.stderr
    cluster.fail_next("Produce", "POLICY_VIOLATION")
    assert run(cluster, "produce", "t", "--failed", str(file), input="v\n").exit_code == 1
    assert [each["value"] for each in objects(file.read_text())] == ["kept", "v"]


def test_failed_records_go_to_standard_output_by_default(cluster: MockCluster) -> None:
    cluster.fail_next("Produce", "POLICY_VIOLATION")
    done = run(cluster, "produce", "t", input="v\n")
    assert done.exit_code == 1
    [failed] = objects(done.stdout)
    assert (failed["topic"], failed["value"]) == ("t", "v") and "POLICY_VIOLATION" in failed["error"]


@pytest.mark.parametrize("more", [(), ("--json",)])
def test_an_empty_topic_is_not_a_topic_that_is_left_out(cluster: MockCluster, more: tuple[str, ...]) -> None:
    done = run(cluster, "produce", "", *more, input='{"topic": "t", "value": "v"}\n')
    assert done.exit_code == 2 and "'[TOPIC]': it is empty" in done.stderr
    assert cluster.records("t") == []


def test_a_reason_without_an_advice_has_no_blank_end(cluster: MockCluster) -> None:
    done = run(cluster, "produce", "no topic", input="v\n")
    assert "1 failed: 'no topic' is no topic name" in done.stderr
    assert all(line == line.rstrip(" .") for line in done.stderr.splitlines()), done.stderr


def test_records_that_may_be_in_the_log_are_told(cluster: MockCluster) -> None:
    cluster.drop_answer("Produce", times=None)
    pairs = ("-X", "retries=0")
    done = run(cluster, "produce", "t", *pairs, input="v\n")
    assert done.exit_code == 1 and "1 failed (1 of them may be in the log)" in done.stderr
    assert objects(done.stdout)[0]["may_be_in_log"] is True


def test_a_line_that_is_no_record_is_told_and_the_others_are_sent(cluster: MockCluster) -> None:
    lines = '{"value": "1"}\n{"vlaue": "2"}\n\n{"value": "3"}\n'
    done = run(cluster, "produce", "t", "--json", "--repartition", input=lines)
    assert done.exit_code == 1
    assert "line 2 is not sent: the field 'vlaue' is unknown" in done.stderr
    assert "2 acknowledged, 0 failed, 1 line was not a record" in done.stderr
    many = run(cluster, "produce", "t", "--json", input="x\n" * 50)
    assert many.stderr.count("is not sent") == 5 and "50 lines were not records" in many.stderr


def test_the_places_of_records_are_told_if_they_are_asked_for(cluster: MockCluster, tmp_path: Path) -> None:
    failed = str(tmp_path / "failed")
    assert ok(cluster, "produce", "t", "-p", "0", "--offsets", "--failed", failed, input="a\nb\n") == "t-0@0\nt-0@1\n"


def test_the_rate_is_kept(cluster: MockCluster) -> None:
    async def scenario(network: object, draw: object) -> list[float]:
        clock = asyncio.get_running_loop().time
        pace, times = Pace(4), [clock()]
        for number in range(9):
            if number == 3:
                await asyncio.sleep(1.1)  # what is late is sent at once, until the pace is reached again
            await pace.wait()
            times.append(clock() - times[0])
        return times[1:]

    times = run_virtual(scenario, seed=1)
    assert times == pytest.approx([0, 0.25, 0.5, 1.6, 1.6, 1.6, 1.6, 1.75, 2.0])
    ok(cluster, "produce", "t", "--rate", "1000000", input="v\n" * 21)
    assert len(cluster.records("t")) == 21


def test_ten_thousand_lines_are_more_than_the_buffer_holds(cluster: MockCluster) -> None:
    pairs = (
        "-X",
        "buffer.memory=20000",
        "-X",
        "batch.size=1000",
        "-X",
        "max.request.size=10000",
        "-X",
        "max.waiting.bytes=0",
    )
    ok(cluster, "produce", "t", *pairs, input="0123456789\n" * 10_000)
    assert len(cluster.records("t")) == 10_000


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("produce",), "TOPIC is missing"),
        (("produce", "t", "--json", "--csv"), "exclude each other"),
        (("produce", "t", "-f", "/nowhere/at/all"), "/nowhere/at/all: No such file or directory"),
        (
            ("produce", "t", "--csv", "--key-field", "id"),
            "the first row has no column 'id'; it has 'v' (is --delimiter right?)",
        ),
        (("produce", "t", "--csv", "--key-field", "id", "-K", ":"), "--key-separator is not of --csv"),
        (
            ("produce", "t", "hello"),
            "extra argument (hello): values are read from standard input, or from --file. See:",
        ),
        (("produce", "t", "--value-field", "x"), "--value-field is of --csv"),
        (("produce", "t", "--repartition"), "--repartition is of --json"),
        (("produce", "t", "--offsets"), "name a file for failed records"),
        (("produce", "t", "--json", "--key-field", "id"), "--key-field is not of --json"),
        (("produce", "t", "--json", "-K", ":"), "--key-separator is not of --json"),
        (("produce", "t", "--json", "--null", "NULL"), "--null is not of --json"),
        (("produce", "t", "--json", "--escapes"), "--escapes is not of --json"),
        (("produce", "t", "--json", "--skip-empty"), "--skip-empty is not of --json"),
        (("produce", "t", "--csv", "-K", ":"), "--key-separator is not of --csv"),
        (("produce", "t", "--csv", "--escapes"), "--escapes is not of --csv"),
        (("produce", "t", "--csv", "--skip-empty"), "--skip-empty is not of --csv"),
        (("produce", "t", "--whole", "--key-field", "id"), "--key-field is not of --whole"),
        (("produce", "t", "--whole", "--null", ""), "--null is not of --whole"),
        (("produce", "t", "--delimiter", ";"), "--delimiter is of --csv"),
        (("produce", "t", "-K", ":", "--key-field", "id"), "--key-separator and --key-field exclude each other"),
        (("produce", "t", "--csv", "--delimiter", "::"), "--delimiter is one character"),
        (("produce", "t", "-H", "x"), "'x' is not NAME=VALUE"),
        (("produce", "t", "-H", "\udcff=1"), "Invalid value for '-H' / '--header': '\\xff' is not UTF-8"),
        (("produce", "t", "--failed", "/nowhere/at/all"), "/nowhere/at/all"),
        (("produce", "t", "-X", "sasl.mechanism=PLAIN", "-X", "sasl.password=hidden-one"), "sasl"),
    ],
)
def test_what_makes_no_sense_is_one_line_and_status_2(
    cluster: MockCluster, arguments: tuple[str, ...], text: str
) -> None:
    done = run(cluster, *arguments, input="v\n")
    assert done.exit_code == 2, done.output
    assert text in done.stderr.splitlines()[-1] or text in done.stderr.splitlines()[0]
    assert "hidden-one" not in done.output


def test_a_line_longer_than_a_request_is_told(cluster: MockCluster) -> None:
    done = run(cluster, "produce", "t", "-X", "max.request.size=1000", "-X", "batch.size=1000", input=b"x" * 300_000)
    assert done.exit_code == 2 and "a line is longer than 1000 bytes: raise max.request.size (-X), or " in done.stderr


def test_what_ends_the_reading_after_records_were_sent_is_status_1(cluster: MockCluster, tmp_path: Path) -> None:
    file = tmp_path / "first"
    file.write_text("one\n")
    done = run(cluster, "produce", "t", "-f", str(file), "-f", "/nowhere/at/all")
    assert done.exit_code == 1, done.output
    assert done.stderr.splitlines() == [
        "aiokprod produce: /nowhere/at/all: No such file or directory", "aiokprod produce: 1 acknowledged, 0 failed",
    ]  # fmt: skip
    small = ("-X", "max.request.size=1000", "-X", "batch.size=1000")
    done = run(cluster, "produce", "t", *small, input=b"two\nthree\n" + b"x" * 2_000)
    assert done.exit_code == 1 and "2 acknowledged" in done.stderr and "longer than 1000 bytes" in done.stderr
    assert {value for _, value in contents(cluster)} == {b"one", b"two", b"three"}


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("-f", "/nowhere/at/all"), "/nowhere/at/all: No such file or directory"),
        (("-f", "/"), "/: Is a directory"),
        (("--csv", "--key-field", "c"), "line 1: the first row has no column 'c'; it has 'a', 'b'"),
        (("--csv",), "line 1: the first row has the column 'a' more than once"),
    ],
)
def test_a_reading_that_breaks_off_at_once_is_one_line(
    cluster: MockCluster, arguments: tuple[str, ...], text: str
) -> None:
    done = run(cluster, "produce", "t", *arguments, input="a,b\n1,2\n" if "c" in arguments else "a,a\n1,2\n")
    assert (done.exit_code, done.stdout, done.stderr) == (2, "", f"aiokprod produce: {text}\n")
    assert contents(cluster) == []


def test_a_disk_that_is_full_is_told_with_the_name_of_the_file(cluster: MockCluster) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("this system has no /dev/full")
    cluster.fail_next("Produce", "POLICY_VIOLATION")
    done = run(cluster, "produce", "t", "--failed", "/dev/full", input="v\n")
    assert done.exit_code == 1
    assert done.stderr.splitlines()[0] == "aiokprod produce: /dev/full: No space left on device"


@pytest.mark.parametrize("separator", ["\\t", "\t", "\\x09"])
def test_a_separator_may_be_written_with_escapes(cluster: MockCluster, separator: str) -> None:
    r"""A shell passes '\t' on as two characters, and no line had them."""
    ok(cluster, "produce", "t", "-p", "0", "-K", separator, input="k\tv\n")
    [record] = cluster.records("t")
    assert (record.key, record.value) == (b"k", b"v")
    arguments = ("produce", "t", "-p", "1", "--csv", "--key-field", "a", "--value-field", "b", "--delimiter", separator)
    ok(cluster, *arguments, input="a\tb\nk\tv\n")
    assert [(each.key, each.value) for each in cluster.records("t", 1)] == [(b"k", b"v")]


def test_a_separator_with_half_an_escape_is_refused(cluster: MockCluster) -> None:
    for wrong in ("\\q", "a\\", "\\N"):
        done = run(cluster, "produce", "t", "-K", wrong, input="k:v\n")
        assert done.exit_code == 2 and "escape" in done.stderr
