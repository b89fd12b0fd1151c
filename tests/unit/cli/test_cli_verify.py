"""`aiokprod verify`: the verdict follows what is in the log."""

from __future__ import annotations

from typing import Any

from cli_runs import objects, ok, run, write

from aiokprod.cli.verify import values_of
from aiokprod.testing import MockCluster
from aiokprod.wire.codes import ErrorCode


def test_a_topic_is_made_judged_and_deleted() -> None:
    with MockCluster(1, auto_create_topics=False) as cluster:
        told = ok(cluster, "verify", "-n", "500")
        assert "500 sent, 500 acknowledged, 0 failed" in told and "lost 0, duplicate 0, reordered 0" in told
        assert cluster.topics == {}
        ok(cluster, "verify", "-n", "10", "--keep")
        [name] = cluster.topics
        assert name.startswith("aiokprod-verify-") and len(cluster.records(name)) == 10


def test_records_of_others_in_the_topic_do_not_count() -> None:
    with MockCluster(1) as cluster:
        cluster.create_topic("orders", partitions=2)
        write(cluster, "orders", [b"0 of another", b"1"])
        [found] = objects(ok(cluster, "verify", "orders", "-n", "20", "--size", "0", "--json"))
        assert (found["acknowledged"], found["lost"], found["is_good"]) == (20, 0, True)
        assert len(cluster.records("orders")) == 22


def test_a_record_that_is_not_in_the_log_makes_the_status_1() -> None:
    with MockCluster(1) as cluster:
        cluster.create_topic("orders")

        def lose() -> None:
            if len(cluster.records("orders")) == 20:
                cluster.delete_records("orders", 0, 3)

        cluster.on_request("ListOffsets", lose, times=None)
        done = run(cluster, "verify", "orders", "-n", "20", "--json")
        [found] = objects(done.stdout)
        assert (done.exit_code, found["lost"], found["is_good"]) == (1, 3, False), done.output


def test_a_record_that_failed_makes_the_status_1() -> None:
    with MockCluster(1) as cluster:
        cluster.create_topic("orders")
        cluster.fail_next("Produce", "POLICY_VIOLATION")
        done = run(cluster, "verify", "orders", "-n", "20")
        assert done.exit_code == 1
        assert "0 acknowledged, 20 failed" in done.stdout and "POLICY_VIOLATION" in done.stderr


def test_the_verdict_is_told_also_if_the_topic_cannot_be_deleted() -> None:
    with MockCluster(1) as cluster:
        cluster.fail_next("DeleteTopics", "TOPIC_AUTHORIZATION_FAILED")
        done = run(cluster, "verify", "-n", "5")
        assert (done.exit_code, "is not deleted" in done.stderr) == (2, True), done.output
        assert "5 sent, 5 acknowledged, 0 failed" in done.stdout and "lost 0" in done.stdout


def test_there_is_no_verdict_without_the_topic() -> None:
    with MockCluster(1, auto_create_topics=False) as cluster:
        done = run(cluster, "verify", "missing")
        assert (done.exit_code, done.stdout, done.stderr.count("\n")) == (2, "", 1)
        assert cluster.topics == {}


def test_a_topic_that_the_reader_may_not_see_is_not_told_as_one_that_does_not_exist() -> None:
    with MockCluster(1) as cluster:
        cluster.create_topic("t")

        def refuse(answer: Any, version: int) -> Any:
            for topic in answer.topics if cluster.requests_seen("Metadata") > 3 else ():  # after the first look
                topic.error_code, topic.partitions = ErrorCode.TOPIC_AUTHORIZATION_FAILED, []
            return answer

        cluster.rewrite_answer("Metadata", refuse, times=None)
        done = run(cluster, "verify", "t", "-n", "1")
        assert (done.exit_code, done.stderr.count("\n")) == (2, 1), done.output
        assert "TOPIC_AUTHORIZATION_FAILED" in done.stderr and "found" not in done.stderr
        assert done.stderr.endswith(" Grant this principal READ on topic 't'.\n")


def test_all_values_are_different_and_of_their_size() -> None:
    values = values_of(1_000, 50, 1)
    assert len(set(values)) == 1_000 and {len(value) for value in values} == {50}
    assert values_of(3, 0, 1) == [b"0 ", b"1 ", b"2 "]


def test_a_delivery_timeout_is_told_without_the_lines_that_only_produce_writes() -> None:
    with MockCluster(1) as cluster:
        cluster.create_topic("t")
        cluster.swallow_next("Produce", times=None)
        pairs = ("-X", "request.timeout.ms=100", "-X", "delivery.timeout.ms=300", "-X", "linger.ms=0")
        verified = run(cluster, "verify", "t", "-n", "1", *pairs)
        produced = run(cluster, "produce", "t", *pairs, input="v\n")
    assert "raise delivery.timeout.ms" in verified.stderr and "may_be_in_log" not in verified.stderr
    assert "may_be_in_log" in produced.stderr
