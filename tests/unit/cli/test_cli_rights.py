"""A right that is missing: the line names the operation and what it is on, as the broker demands it."""

from __future__ import annotations

from typing import Any

import pytest
from cli_runs import leave_open, run, write

from aiokprod.testing import MockCluster
from aiokprod.wire.codes import ErrorCode

TOPIC, CLUSTER, ID = (
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
)
ON_ID = "on the transactional id"


@pytest.mark.parametrize(
    ("api", "code", "command", "right"),
    [
        ("Metadata", TOPIC, "read t", "READ on topic 't'"),
        ("Metadata", TOPIC, "tail t", "READ on topic 't'"),
        ("Metadata", TOPIC, "verify t", "READ and WRITE on topic 't'"),
        ("Metadata", TOPIC, "perf t", "WRITE on topic 't'"),
        ("Metadata", TOPIC, "topics describe t", "DESCRIBE and DESCRIBE_CONFIGS on topic 't'"),
        ("Metadata", TOPIC, "topics delete t --yes", "DELETE on topic 't'"),
        ("Metadata", TOPIC, "transactions find-hanging", "READ on topic 't'"),
        ("Metadata", CLUSTER, "read t", "DESCRIBE on the cluster"),
        ("Fetch", TOPIC, "read t", "READ on topic 't'"),
        ("Fetch", TOPIC, "tail t --from beginning", "READ on topic 't'"),
        ("Fetch", TOPIC, "verify t -n 1", "READ on topic 't'"),
        ("ListOffsets", TOPIC, "read t", "READ on topic 't'"),
        ("CreateTopics", TOPIC, "topics create new --yes", "CREATE on topic 'new'"),
        ("CreateTopics", CLUSTER, "topics create new --yes", "CREATE on the cluster"),
        ("CreateTopics", CLUSTER, "verify", "CREATE on the cluster"),
        ("DeleteTopics", TOPIC, "topics delete t --yes", "DELETE on topic 't'"),
        ("DescribeConfigs", TOPIC, "topics describe t", "DESCRIBE_CONFIGS on topic 't'"),
        ("FindCoordinator", ID, "transactions describe open", f"DESCRIBE {ON_ID} 'open'"),
        ("DescribeTransactions", ID, "transactions describe open", f"DESCRIBE {ON_ID} 'open'"),
        ("EndTxn", ID, "transactions abort --id open --yes", f"WRITE and DESCRIBE {ON_ID}"),
        ("DescribeProducers", TOPIC, "transactions find-hanging", "READ on topic 't'"),
        (
            "WriteTxnMarkers", CLUSTER, "transactions abort --topic t --partition 0 --offset 1 --yes",
            "ALTER on the cluster (brokers without KIP-1037: CLUSTER_ACTION)",
        ),
    ],
    ids=lambda value: value.replace(" ", "_") if isinstance(value, str) else None,
)  # fmt: skip
def test_the_right_that_is_missing_is_named(api: str, code: ErrorCode, command: str, right: str) -> None:
    with MockCluster(1, auto_create_topics=False) as cluster:
        cluster.create_topic("t")
        write(cluster, "t", [b"v"])
        if command.startswith("transactions"):
            leave_open(cluster, "open")
        if api == "WriteTxnMarkers":
            cluster.lose_transaction("open")
        if api == "Metadata":
            cluster.rewrite_answer("Metadata", refused_with(code), times=None)
        else:
            cluster.fail_next(api, code, times=None)
        done = run(cluster, *command.split(), "--timeout", "20")
    assert (done.exit_code, done.stderr.count("\n")) == (2, 1), done.output
    assert code.name in done.stderr and done.stderr.endswith(f" Grant this principal {right}.\n"), done.stderr


def refused_with(code: ErrorCode) -> Any:
    def change(answer: Any, version: int) -> Any:
        for topic in answer.topics:
            topic.error_code, topic.partitions = code, []
        return answer

    return change


@pytest.mark.parametrize(("api", "code"), [("InitProducerId", CLUSTER), ("Produce", TOPIC)])
def test_the_right_to_write_is_named_where_records_failed(api: str, code: ErrorCode) -> None:
    with MockCluster(1) as cluster:
        cluster.create_topic("t")
        cluster.fail_next(api, code, times=None)
        done = run(cluster, "verify", "t", "-n", "3")
    assert done.exit_code == 1, done.output
    last = done.stderr.splitlines()[-1]
    assert code.name in last and "Grant this principal WRITE" in last and "close()" not in last
