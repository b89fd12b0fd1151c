"""Errors of a task that cannot begin, or whose rows are refused: one text, with Spark's names of the options."""

from __future__ import annotations

import ssl
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest
import trustme

from aiokprod import ProducerConfig
from aiokprod.errors import (
    AiokprodError,
    AuthenticationError,
    BootstrapError,
    ClusterAuthorizationError,
    ConfigError,
    ProducerFailedError,
    ProducerFencedError,
    TlsError,
    TopicAuthorizationError,
    UnknownTopicError,
)
from aiokprod.spark.engine import end_engine
from aiokprod.spark.errors import RowError
from aiokprod.spark.options import SinkOptions
from aiokprod.spark.schema import ColumnPlan
from aiokprod.spark.task_errors import as_spark_shows_it
from aiokprod.spark.writer import BatchWriter
from aiokprod.testing.mock import MockCluster

CONFIG = ProducerConfig(bootstrap_servers="h:1")
WAITS = "A task waits 400 ms for the cluster, and as long for an unknown topic (kafka.max.block.ms)."
PASSWORD = {"kafka.security.protocol": "SASL_PLAINTEXT", "kafka.sasl.mechanism": "PLAIN"}
PASSWORD |= {"kafka.sasl.username": "user", "kafka.sasl.password": "canary-7d1f"}


@pytest.fixture(autouse=True)
def no_engine() -> Iterator[None]:
    yield
    end_engine()


def failure(servers: str, **options: str) -> AiokprodError:
    """Return the error of a task that writes two rows."""
    given = {"kafka.bootstrap.servers": servers, "topic": "t", "kafka.max.block.ms": "400", **options}
    writer = BatchWriter(SinkOptions.read(given), ColumnPlan(value=0), "a job")
    with pytest.raises(AiokprodError) as caught:
        writer.write(iter([pa.record_batch({"value": pa.array([b"a", b"b"])})]))
    return caught.value


def shown(error: AiokprodError) -> str:
    """Return the text of the error that Spark shows below the traceback; check that nothing stands above that."""
    assert error.__cause__ is error.__context__ is None
    frames = traceback.extract_tb(error.__traceback__)
    assert {Path(frame.filename).name for frame in frames} == {"test_task_errors.py", "writer.py"}
    return "".join(traceback.format_exception_only(error))


def test_a_cluster_that_is_not_there() -> None:
    error = failure("127.0.0.1:1")
    assert type(error) is BootstrapError
    assert "tried 127.0.0.1:1: cannot connect: Connection refused" in shown(error)
    assert "Check kafka.bootstrap.servers, the network" in shown(error)
    assert WAITS in shown(error)


@pytest.mark.parametrize("options", [{}, {"kafka.allow.auto.create.topics": "false"}])
def test_a_topic_that_is_not_there(options: dict[str, str]) -> None:
    with MockCluster(brokers=1, auto_create_topics=bool(options)) as cluster:
        error = failure(cluster.bootstrap_servers, **options)
    assert type(error) is UnknownTopicError
    assert "topic 't' is not there after 0.4 s: UNKNOWN_TOPIC_OR_PARTITION" in shown(error)
    assert "and the producer's kafka.allow.auto.create.topics too." in shown(error)
    assert "Topic 't', rows 0 to 1 of this task." in shown(error)
    assert WAITS in shown(error)


@dataclass(frozen=True)
class Wrong:
    """A listener and options that do not fit: the error, and what its text has."""

    listener: dict[str, object]
    options: dict[str, str]
    error: type[AiokprodError]
    text: str


def tls() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trustme.CA().issue_cert("127.0.0.1").configure_cert(context)
    return context


SASL: dict[str, object] = {"sasl_mechanisms": ["PLAIN"], "users": {"user": "other"}}
SSL = {"kafka.security.protocol": "SSL"}
CASES: dict[str, Callable[[], Wrong]] = {
    "TLS, plain listener": lambda: Wrong({}, SSL, TlsError, "Check kafka.security.protocol, the certificate authorities"),
    "TLS, unknown authority": lambda: Wrong(
        {"ssl_context": tls()}, SSL, TlsError, "not trusted here: name that one in kafka.ssl.cafile"
    ),
    "plain, TLS listener": lambda: Wrong(
        {"ssl_context": tls()}, {}, BootstrapError, "set kafka.security.protocol to SSL or SASL_SSL"
    ),
    "SASL, plain listener": lambda: Wrong({}, PASSWORD, AuthenticationError, "does not speak SASL"),
    "SASL, wrong password": lambda: Wrong(SASL, PASSWORD, AuthenticationError, "then kafka.sasl.mechanism, kafka.sasl.user"),
    "plain, SASL listener": lambda: Wrong(SASL, {}, BootstrapError, "want SASL? see kafka.security.protocol"),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
@pytest.mark.filterwarnings("ignore:.*without TLS")
def test_a_listener_that_the_options_do_not_fit(case: str) -> None:
    wrong = CASES[case]()
    with MockCluster(brokers=1, **wrong.listener) as cluster:  # type: ignore[arg-type] # each case knows its own
        error = failure(cluster.bootstrap_servers, **wrong.options)
    assert type(error) is wrong.error
    assert wrong.text in shown(error)
    assert (WAITS in shown(error)) == (wrong.error is BootstrapError)  # the others come at once
    assert "canary" not in shown(error)


def test_a_file_that_the_worker_cannot_read() -> None:
    error = failure("127.0.0.1:1", **SSL, **{"kafka.ssl.ca.location": "/no/such"})
    assert type(error) is ConfigError
    assert "kafka.ssl.cafile: /no/such cannot be read: No such file or directory" in shown(error)


def test_a_topic_that_the_principal_may_not_see(mock_kafka: MockCluster) -> None:
    mock_kafka.create_topic("t", 1)
    mock_kafka.fail_next("Metadata", "TOPIC_AUTHORIZATION_FAILED", topic="t", times=None)
    error = failure(mock_kafka.bootstrap_servers)
    assert type(error) is TopicAuthorizationError
    assert "topic 't': TOPIC_AUTHORIZATION_FAILED" in shown(error)
    assert "Grant this principal WRITE and DESCRIBE on the topic." in shown(error)


def test_a_topic_that_the_principal_may_not_write_to(mock_kafka: MockCluster) -> None:
    mock_kafka.create_topic("t", 1)
    mock_kafka.fail_next("Produce", "TOPIC_AUTHORIZATION_FAILED", times=None)
    error = failure(mock_kafka.bootstrap_servers)
    assert type(error) is RowError
    assert "the first is row 0 of this task: TopicAuthorizationError: TOPIC_AUTHORIZATION_FAILED (" in shown(error)
    assert shown(error).count("code=29") == 1
    assert "Grant this principal WRITE and DESCRIBE on the topic." in shown(error)


def test_a_cluster_that_gives_the_principal_no_producer_id(mock_kafka: MockCluster) -> None:
    mock_kafka.create_topic("t", 1)
    mock_kafka.fail_next("InitProducerId", "CLUSTER_AUTHORIZATION_FAILED", times=None)
    for _ in range(2):  # the attempt whose rows wait for the id, and one that may find the producer failed
        error = failure(mock_kafka.bootstrap_servers)
        assert type(error) in (RowError, ClusterAuthorizationError)
        assert "the cluster gives no producer id: CLUSTER_AUTHORIZATION_FAILED" in shown(error)
        assert "IDEMPOTENT_WRITE on the cluster), or set kafka.enable.idempotence=False." in shown(error)
        assert "start() it again" not in shown(error)


def test_an_internal_error_keeps_its_traceback() -> None:
    error = ProducerFailedError("the producer has failed")
    error.__cause__ = OSError("planted")
    assert as_spark_shows_it(error, CONFIG) is error
    assert as_spark_shows_it(fenced := ProducerFencedError("fenced"), CONFIG) is fenced


def test_a_producer_that_failed_is_told_by_its_cause_and_the_rows_of_the_task() -> None:
    error = ProducerFailedError("the producer has failed: no id")
    error.__cause__ = ClusterAuthorizationError("no id", code=31)
    error.add_note("Topic 't', rows 0 to 2 of this task.")
    told = as_spark_shows_it(error, CONFIG)
    assert (type(told), told.code, str(told)) == (ClusterAuthorizationError, 31, "no id (code=31)")
    assert told.__notes__[1:] == ["Topic 't', rows 0 to 2 of this task."]


def test_a_topic_that_is_refused_at_once_has_waited_for_nothing() -> None:
    error = UnknownTopicError("topic '?': INVALID_TOPIC_EXCEPTION", elapsed_s=0.1)
    assert as_spark_shows_it(error, CONFIG).__notes__ == [
        "Create the topic, or correct its name. Brokers create it themselves only if their auto.create.topics.enable is on,"
        " and the producer's kafka.allow.auto.create.topics too."
    ]
