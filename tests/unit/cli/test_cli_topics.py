"""`aiokprod topics`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from cli_runs import objects, ok, run, write

from aiokprod.testing import MockCluster
from aiokprod.wire.codes import ErrorCode


@pytest.fixture
def cluster() -> Iterator[MockCluster]:
    with MockCluster(3, auto_create_topics=False, cluster_id="aiokprod-cluster-1") as started:
        started.create_topic("orders", partitions=2, retention_ms=1000)
        yield started


@pytest.fixture
def foreign() -> Iterator[MockCluster]:
    with MockCluster(1, auto_create_topics=False) as started:
        started.create_topic("orders", partitions=2)
        yield started


@pytest.mark.parametrize("command", ["verify -n 1", "perf -n 1 --client aiokprod", "topics describe orders"])
@pytest.mark.parametrize("code", ["TOPIC_ALREADY_EXISTS", "INVALID_CONFIG", "INVALID_REPLICATION_FACTOR"])
def test_options_of_create_are_advised_to_create_only(cluster: MockCluster, command: str, code: str) -> None:
    cluster.fail_next("CreateTopics", code, times=None)
    cluster.fail_next("DescribeConfigs", code, times=None)
    created = run(cluster, "topics", "create", "new")
    assert code in created.stderr and any(option in created.stderr for option in ("--if-missing", "-o ", "--replicas"))
    done = run(cluster, *command.split())
    assert done.exit_code == 2 and code in done.stderr
    assert not any(option in done.stderr for option in ("--if-missing", "-o ", "--replicas")), done.stderr


@pytest.mark.parametrize(("option", "number"), [("--partitions", 2**31), ("--replicas", 2**15)])
def test_a_number_that_kafka_has_no_place_for_is_refused(cluster: MockCluster, option: str, number: int) -> None:
    done = run(cluster, "topics", "create", "new", option, str(number))
    assert done.exit_code == 2 and f"Invalid value for '{option}'" in done.stderr
    assert run(cluster, "topics", "create", "new", "--replicas", str(2**15 - 1)).exit_code == 2


@pytest.mark.parametrize(
    "arguments", [("create", "{}"), ("describe", "{}"), ("delete", "{}"), ("create", "new", "-o", "a={}")]
)
def test_a_text_that_older_requests_have_no_place_for_is_one_line(arguments: tuple[str, ...]) -> None:
    with MockCluster(1, kafka_version="2.1") as cluster:
        done = run(cluster, "topics", *(each.format("a" * 32_768) for each in arguments))
    assert (done.exit_code, done.stderr.count("\n")) == (2, 1)


def test_topics_are_listed_with_their_trouble(cluster: MockCluster) -> None:
    cluster.create_topic("audit", replication_factor=2)
    cluster.move_leader("orders", 1, None)
    head, *rows = ok(cluster, "topics", "list").splitlines()
    assert head.split() == ["TOPIC", "PARTITIONS", "REPLICAS", "TROUBLE"]
    assert [row.split(maxsplit=3)[:3] for row in rows] == [["audit", "1", "2"], ["orders", "2", "3"]]
    assert rows[1].endswith("no leader: 1")
    found = objects(ok(cluster, "topics", "list", "--json"))
    assert found[0] == {"topic": "audit", "partitions": 1, "replicas": 2, "trouble": ""}


def test_a_topic_is_described(cluster: MockCluster) -> None:
    write(cluster, "orders", [b"a", b"b"], partition=1)
    cluster.delete_records("orders", 1, 1)
    told = ok(cluster, "topics", "describe", "orders")
    assert "orders: 2 partitions" in told and "retention.ms  1000" in told and "cleanup.policy" not in told
    [found] = objects(ok(cluster, "topics", "describe", "orders", "--json"))
    assert [(each["partition"], each["first_offset"], each["end_offset"]) for each in found["partitions"]] == [
        (0, 0, 0), (1, 1, 2),
    ]  # fmt: skip
    assert found["options"] == {"retention.ms": "1000"}
    assert "cleanup.policy" in ok(cluster, "topics", "describe", "orders", "--all-options")


def test_a_partition_without_a_leader_has_no_offsets(cluster: MockCluster) -> None:
    cluster.move_leader("orders", 0, None)
    [found] = objects(ok(cluster, "topics", "describe", "orders", "--json"))
    assert (found["partitions"][0]["leader"], found["partitions"][0]["end_offset"]) == (-1, None)


def test_a_development_cluster_is_changed_without_more_words(cluster: MockCluster) -> None:
    ok(cluster, "topics", "create", "new", "--partitions", "4", "--replicas", "2", "-o", "retention.ms=5")
    assert cluster.topics["new"] == 4
    assert len(cluster.partition("new").replicas) == 2
    ok(cluster, "topics", "create", "new", "--if-missing")
    ok(cluster, "topics", "delete", "new", "orders")
    assert cluster.topics == {}
    ok(cluster, "topics", "delete", "new", "--if-there")


def test_any_other_cluster_needs_a_yes(foreign: MockCluster) -> None:
    for arguments in (("create", "new"), ("delete", "orders")):
        done = run(foreign, "topics", *arguments)
        assert (done.exit_code, done.stdout) == (2, "")
        assert "would" in done.stderr and "add --yes to do it" in done.stderr
    assert foreign.topics == {"orders": 2}
    ok(foreign, "topics", "create", "new", "--yes")
    ok(foreign, "topics", "delete", "orders", "--yes")
    assert foreign.topics == {"new": 1}


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("create", "orders", "--yes"), "topic 'orders' is not created: TOPIC_ALREADY_EXISTS"),
        (("create", "no spaces", "--yes"), "topic 'no spaces' is not created: INVALID_TOPIC_EXCEPTION"),
        (("create", "x", "--replicas", "9"), "INVALID_REPLICATION_FACTOR"),
        (("create", "x", "-o", "retention.ms"), "is not NAME=VALUE"),
        (("delete", "missing", "--yes"), "nothing is deleted: topic 'missing'"),
        (("delete", "orders", "missing", "--yes"), "nothing is deleted: topic 'missing'"),
        (("describe", "missing"), "topic 'missing' is not described: UNKNOWN_TOPIC_OR_PARTITION"),
        (("list", "-b", "127.0.0.1:1", "-X", "start.timeout.ms=50"), "127.0.0.1:1"),
    ],
)
def test_an_error_is_one_line_and_status_2(foreign: MockCluster, arguments: tuple[str, ...], text: str) -> None:
    done = run(foreign, "topics", *arguments)
    assert (done.exit_code, done.stdout, done.stderr.count("\n")) == (2, "", 1), done.output
    assert text in done.stderr
    assert foreign.topics == {"orders": 2}


def test_a_controller_that_has_moved_is_asked_again(cluster: MockCluster) -> None:
    cluster.fail_next("CreateTopics", "NOT_CONTROLLER")
    ok(cluster, "topics", "create", "new")
    assert "new" in cluster.topics


@pytest.mark.parametrize(
    ("command", "api", "said"),
    [
        (("create", "new"), "CreateTopics", "topic 'new' may have been created; see: aiokprod topics describe new"),
        (("delete", "orders"), "DeleteTopics", "topic 'orders' may have been deleted; see: aiokprod topics list"),
    ],
)
def test_a_change_without_an_answer_is_not_done_and_says_what_may_have_happened(
    cluster: MockCluster, command: tuple[str, ...], api: str, said: str
) -> None:
    cluster.hold(api)
    done = run(cluster, "topics", *command, "--timeout", "0.3")
    assert (done.exit_code, done.stdout, done.stderr.count("\n")) == (2, "", 1), done.output
    assert said in done.stderr and "no answer" in done.stderr


@pytest.mark.parametrize(("api", "said"), [("CreateTopics", "may have been created"), ("Metadata", "no such request")])
def test_a_connection_that_is_lost_is_told_with_what_may_have_happened(
    cluster: MockCluster, api: str, said: str
) -> None:
    cluster.drop_answer(api)
    done = run(cluster, "topics", "create", "new")
    if api == "Metadata":
        assert done.exit_code == 0  # nothing was changed yet; the client asks again
    else:
        assert done.exit_code == 2 and said in done.stderr and "new" in cluster.topics


def test_a_topic_that_is_there_is_told_with_the_option_for_it() -> None:
    with MockCluster(1, cluster_id="aiokprod-cluster-1") as cluster:
        cluster.create_topic("t")
        done = run(cluster, "topics", "create", "t")
        assert done.exit_code == 2 and "--if-missing" in done.stderr and "list of error codes" not in done.stderr
        done = run(cluster, "topics", "create", "bad name")
        assert done.exit_code == 2 and "a-z A-Z 0-9 . _ -" in done.stderr and "list of error codes" not in done.stderr


@pytest.mark.parametrize(
    "command",
    [
        ("read",), ("tail",), ("verify",), ("perf", "-n", "1"), ("topics", "describe"), ("topics", "delete"),
        ("transactions", "find-hanging", "--topic"), ("transactions", "abort", "--partition", "0", "--offset", "0", "--topic"),
    ],
)  # fmt: skip
def test_a_mistyped_topic_is_told_with_the_one_that_was_meant(foreign: MockCluster, command: tuple[str, ...]) -> None:
    done = run(foreign, *command, "ordres")
    assert (done.exit_code, done.stdout, done.stderr.count("\n")) == (2, "", 1), done.output
    assert "Did you mean 'orders'?" in done.stderr and "auto" not in done.stderr
    assert ("--if-there" in done.stderr) == ("delete" in command)
    done = run(foreign, *command, "invoices")
    assert "`aiokprod topics list` shows the topics" in done.stderr and "mean" not in done.stderr


def test_what_is_changed_is_told(cluster: MockCluster) -> None:
    def told(*arguments: str) -> str:
        done = run(cluster, "topics", *arguments)
        assert (done.exit_code, done.stdout) == (0, "")
        return done.stderr

    assert told("create", "new") == "aiokprod topics create: topic 'new' is created\n"
    assert told("create", "new", "--if-missing").endswith(" topic 'new' exists already: it is left as it is\n")
    assert told("delete", "new") == "aiokprod topics delete: topic 'new' is deleted\n"
    assert told("delete", "new", "--if-there").endswith(" topic 'new' does not exist: there is nothing to delete\n")


def answer_topics_with(code: int) -> Callable[[Any, int], Any]:
    def change(answer: Any, version: int) -> Any:
        for topic in answer.topics:
            topic.error_code, topic.partitions = code, []
        return answer

    return change


UNTOLD = pytest.mark.parametrize(
    "code",
    [ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.UNKNOWN_SERVER_ERROR],
)


@UNTOLD
def test_if_there_leaves_out_only_a_topic_that_does_not_exist(cluster: MockCluster, code: ErrorCode) -> None:
    cluster.rewrite_answer("Metadata", answer_topics_with(code), times=None)
    done = run(cluster, "topics", "delete", "orders", "--if-there")
    assert (done.exit_code, done.stdout, done.stderr.count("\n")) == (2, "", 1), done.output
    assert f"nothing is deleted: topic 'orders': {code.name}" in done.stderr


@UNTOLD
def test_if_missing_leaves_a_topic_alone_that_metadata_does_not_tell(cluster: MockCluster, code: ErrorCode) -> None:
    cluster.rewrite_answer("Metadata", answer_topics_with(code), times=None)
    done = run(cluster, "topics", "create", "orders", "--if-missing")
    assert (done.exit_code, done.stdout) == (0, ""), done.output
    assert done.stderr.endswith(" topic 'orders' exists already: it is left as it is\n")
    done = run(cluster, "topics", "create", "new", "--if-missing")
    assert done.exit_code == 0 and done.stderr.endswith(" topic 'new' is created\n")


@UNTOLD
def test_the_error_of_a_topic_is_its_trouble_in_the_list(cluster: MockCluster, code: ErrorCode) -> None:
    cluster.rewrite_answer("Metadata", answer_topics_with(code), times=None)
    assert ok(cluster, "topics", "list").splitlines()[1].split() == ["orders", "0", "0", code.name]
    [found] = objects(ok(cluster, "topics", "list", "--json"))
    assert found["trouble"] == code.name


def partitions_of(cluster: MockCluster, topic: str = "orders") -> int:
    return len(objects(ok(cluster, "topics", "describe", topic, "--json"))[0]["partitions"])


@pytest.mark.parametrize("is_foreign", [False, True])
def test_more_partitions_need_yes_everywhere_and_say_that_keys_move(
    cluster: MockCluster, foreign: MockCluster, is_foreign: bool
) -> None:
    asked = foreign if is_foreign else cluster
    done = run(asked, "topics", "alter", "orders", "--partitions", "5")
    assert (done.exit_code, done.stdout) == (2, "")
    assert "keys move" in done.stderr and "up from 2; add --yes" in done.stderr
    assert partitions_of(asked) == 2
    done = run(asked, "topics", "alter", "orders", "--partitions", "5", "--yes")
    assert done.exit_code == 0 and "keys move" in done.stderr and "has 5 partitions, up from 2" in done.stderr
    assert partitions_of(asked) == 5
    again = run(asked, "topics", "alter", "orders", "--partitions", "5", "--yes")
    assert again.exit_code == 0 and "nothing to do" in again.stderr and "keys move" not in again.stderr


def test_fewer_partitions_are_refused(cluster: MockCluster) -> None:
    done = run(cluster, "topics", "alter", "orders", "--partitions", "1", "--yes")
    assert done.exit_code == 2 and "has 2 partitions, and Kafka takes none away" in done.stderr


def test_options_are_set_and_unset(cluster: MockCluster, foreign: MockCluster) -> None:
    ok(
        cluster,
        "topics",
        "alter",
        "orders",
        "-o",
        "retention.bytes=7",
        "-o",
        "cleanup.policy=compact",
        "--unset",
        "retention.ms",
    )
    [found] = objects(ok(cluster, "topics", "describe", "orders", "--json"))
    assert found["options"] == {"cleanup.policy": "compact", "retention.bytes": "7"}
    done = run(foreign, "topics", "alter", "orders", "-o", "retention.bytes=7")
    assert done.exit_code == 2 and "would give topic 'orders' retention.bytes=7; add --yes" in done.stderr
    assert objects(ok(foreign, "topics", "describe", "orders", "--json"))[0]["options"] == {}
    done = run(foreign, "topics", "alter", "orders", "-o", "retention.bytes=7", "--yes")
    assert done.stderr.endswith("topic 'orders' has retention.bytes=7\n")


def test_nothing_is_done_if_one_of_both_would_be_refused(cluster: MockCluster) -> None:
    done = run(cluster, "topics", "alter", "orders", "--partitions", "4", "-o", "retention.bytes=much", "--yes")
    assert done.exit_code == 2 and "INVALID_CONFIG" in done.stderr and "Correct -o" in done.stderr
    assert partitions_of(cluster) == 2


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (("orders",), "nothing to alter"),
        (("orders", "-o", "a"), "is not NAME=VALUE"),
        (("orders", "-o", "a=1", "--unset", "a"), "leave one of them out"),
        (("order", "--partitions", "3", "--yes"), "Did you mean 'orders'?"),
    ],
)
def test_what_cannot_be_altered_is_told(cluster: MockCluster, arguments: tuple[str, ...], part: str) -> None:
    done = run(cluster, "topics", "alter", *arguments)
    assert done.exit_code == 2 and part in done.stderr and done.stderr.count("\n") == 1


def test_a_right_that_is_missing_to_alter_is_named(cluster: MockCluster) -> None:
    cluster.fail_next("CreatePartitions", "TOPIC_AUTHORIZATION_FAILED")
    done = run(cluster, "topics", "alter", "orders", "--partitions", "4", "--yes")
    assert "Grant this principal ALTER on topic 'orders'" in done.stderr
    cluster.fail_next("IncrementalAlterConfigs", "TOPIC_AUTHORIZATION_FAILED")
    done = run(cluster, "topics", "alter", "orders", "-o", "retention.bytes=7")
    assert "Grant this principal ALTER_CONFIGS on topic 'orders'" in done.stderr
