"""`aiokprod doctor`: broken set-ups, each on a broker in this process, and the line that it says to change."""

from __future__ import annotations

import json
import re
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pytest
import trustme
from cli_runs import ok
from click.testing import CliRunner

from aiokprod.cli.doctor import doctor
from aiokprod.cli.doctoring.finding import NOT_HERE, Finding
from aiokprod.cli.doctoring.topics import of_record
from aiokprod.cluster.dialing import dns
from aiokprod.cluster.dialing.connection_settings import ConnectionSettings
from aiokprod.config import ProducerConfig
from aiokprod.errors import ConnectionLostError
from aiokprod.testing import MockCluster
from aiokprod.testing.virtual import VirtualNetwork, run_virtual
from aiokprod.wire.codes import ErrorCode
from aiokprod.wire.messages.metadata import MetadataResponse

PASSWORD = "the-password-of-alice"
DELETE_SASL = "and delete sasl.mechanism, sasl.username, sasl.password"


class Told(NamedTuple):
    status: int
    changes: dict[str, str]
    """finding -> line to change, of all that is wrong or worth a note"""
    states: dict[str, str]
    text: str


def examine(servers: str | None, *arguments: str, environ: dict[str, str] | None = None) -> Told:
    where = () if servers is None else ("-b", servers)
    environment = {"KAFKA_PORT": "", "AIOKPROD_BOOTSTRAP_SERVERS": "", **(environ or {})}
    done = CliRunner().invoke(doctor, ["--json", "--timeout", "20", *arguments, *where], env=environment)
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert PASSWORD not in done.output
    changes = {each["finding"]: each["change"] for each in found if each["change"]}
    return Told(done.exit_code, changes, {each["finding"]: each["state"] for each in found}, done.output)


def check(told: Told, finding: str, change: str, state: str = "wrong") -> None:
    assert told.states.get(finding) == state, told.text
    assert change in told.changes[finding], told.text
    assert told.status == (1 if state == "wrong" else 0), told.text


@pytest.fixture
def cluster() -> Iterator[MockCluster]:
    with MockCluster(1, auto_create_topics=False) as started:
        started.create_topic("orders", partitions=2)
        yield started


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="module")
def ca_file(authority: trustme.CA, tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("tls") / "ca.pem"
    authority.cert_pem.write_to_path(str(path))
    return str(path)


def server_context(certificate: trustme.LeafCert) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    certificate.configure_cert(context)
    return context


@contextmanager
def tls_cluster(certificate: trustme.LeafCert, **more: Any) -> Iterator[MockCluster]:
    with MockCluster(1, ssl_context=server_context(certificate), **more) as started:
        yield started


def port_of(cluster: MockCluster) -> int:
    return cluster.broker(1).port


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


@contextmanager
def server(answer: bytes) -> Iterator[int]:
    """Run a server that answers the first bytes it gets with these, and hangs up."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            while True:
                try:
                    taken, _ = listener.accept()
                except OSError:
                    return
                with taken:
                    if taken.recv(1024):
                        taken.sendall(answer)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)
        thread.join(5)


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[str]]:
    """Return a table of names and addresses, which is asked for the names in it before the resolver is."""
    table: dict[str, list[str]] = {}

    async def look_up(host: str, port: int) -> list[dns.Address]:
        if host not in table:
            return await dns.resolve(host, port)
        if not table[host]:
            raise ConnectionLostError(f"{host}:{port}: the name cannot be resolved: Name or service not known")
        return [
            dns.Address(socket.AF_INET6, (address, port, 0, 0))
            if ":" in address
            else dns.Address(socket.AF_INET, (address, port))
            for address in table[host]
        ]

    real = ConnectionSettings.from_config
    monkeypatch.setattr(ConnectionSettings, "from_config", lambda config: replace(real(config), resolver=look_up))
    monkeypatch.setattr("aiokprod.cli.doctoring.servers.resolve", look_up)
    return table


# ---------------------------------------------------------------------- nothing is wrong


def test_nothing_is_wrong(cluster: MockCluster) -> None:
    told = examine(cluster.bootstrap_servers, "orders")
    assert (told.status, told.changes) == (0, {}), told.text
    assert set(told.states) == {"options", "servers", "brokers", "topic"}
    assert cluster.records("orders") == []


def test_a_record_is_only_sent_if_it_is_asked_for(cluster: MockCluster) -> None:
    told = examine(cluster.bootstrap_servers, "orders", "--send")
    assert (told.status, told.states["record"]) == (0, "good"), told.text
    [record] = cluster.records("orders")
    assert record.headers == (("aiokprod-doctor", b"1"),)
    assert CliRunner().invoke(doctor, ["--send"]).exit_code == 2


def test_for_people_each_finding_is_two_lines(cluster: MockCluster) -> None:
    done = CliRunner().invoke(doctor, ["audit", "-b", cluster.bootstrap_servers])
    *_, what, change = done.stdout.splitlines()
    assert what.startswith("wrong  topic-missing: topic 'audit' does not exist")
    assert change == "       change: aiokprod topics create audit --yes"
    assert done.exit_code == 1 and "\x1b" not in done.stdout


# ---------------------------------------------------------------------- settings and variables


def test_no_server_is_named() -> None:
    check(examine(None), "no-server", "bootstrap.servers=HOST:PORT")


def test_an_address_that_kubernetes_injects_has_a_scheme() -> None:
    told = examine(
        "tcp://10.0.0.1:9092", environ={"KAFKA_PORT": "tcp://10.0.0.1:9092", "KAFKA_SERVICE_HOST": "10.0.0.1"}
    )
    check(told, "server-with-scheme", "bootstrap.servers=10.0.0.1:9092")
    assert told.states["kubernetes-variables"] == "note"
    assert "enableServiceLinks: false" in told.changes["kubernetes-variables"]


def test_a_variable_that_looks_like_an_option_is_not_read(cluster: MockCluster) -> None:
    told = examine(cluster.bootstrap_servers, environ={"KAFKA_BROKERS": "kafka:9092", "KAFKA_LINGER_MS": "5"})
    check(told, "ignored-variable", "AIOKPROD_LINGER_MS=...", "note")
    assert "AIOKPROD_BOOTSTRAP_SERVERS" in told.text


def test_an_option_is_misspelled() -> None:
    check(examine("kafka:9092", "-X", "lingr.ms=5"), "unknown-option", "linger.ms=...")


def test_two_options_conflict() -> None:
    told = examine("kafka:9092", "-X", "acks=1", "-X", "enable.idempotence=true")
    check(told, "option", "aiokprod config explain")


def test_a_password_without_sasl_in_the_protocol() -> None:
    told = examine("kafka:9092", "-X", "sasl.username=alice", "-X", f"sasl.password={PASSWORD}")
    assert told.status == 1 and list(told.states) == ["option"], told.text
    assert "security.protocol" in told.changes["option"] or "security_protocol" in told.text


SASL = ("-X", "sasl.mechanism=PLAIN", "-X", "sasl.username=alice", "-X", f"sasl.password={PASSWORD}")
SECURE = ("-X", "security.protocol=SASL_SSL")
TLS = ("-X", "security.protocol=SSL")


@pytest.mark.parametrize(
    ("arguments", "finding", "change"),
    [
        (SASL, "option", "security.protocol=SASL_SSL"),
        (("-X", "ssl.cafile=/ca.pem"), "option", "security.protocol=SSL"),
        (SECURE, "option", "sasl.mechanism=..."),
        ((*SECURE, *SASL[:4]), "option", "sasl.password=..."),
        ((*SECURE, "-X", "sasl.mechanism=NONE"), "option", "sasl.mechanism=..."),
        ((*TLS, "-X", "ssl_cafile=a", "-X", "ssl_ca_pem=b"), "option", "delete ssl_ca_pem"),
        ((*TLS, "-X", "ssl_keyfile=a"), "tls-files", "ssl.certfile=PATH"),
        (("-X", "ssl.cafile="), "tls-files", "ssl.cafile=PATH"),
        (("-X", "linger.ms=abc"), "option", "linger.ms=...  (see: aiokprod config explain linger_ms)"),
        (("-X", "queue.buffering.max.ms=-1"), "option", "queue.buffering.max.ms=...  (see: aiokprod config explain li"),
        (("-X", "batch.size=5000000", "-X", "max.request.size=1048576"), "option", "batch.size=1048576"),
        (("-X", "foo=1"), "unknown-option", "delete foo"),
        (("-X", "foo"), "option", "-X NAME=VALUE"),
        (("-X", "sasl.jaas.config=x"), "option", "sasl.jaas.config=..."),
        (("-X", "dr_cb=x"), "option", "delete dr_cb"),
        (
            ("-X", "ssl.key.pem.password=x"),
            "option",
            "ssl.key.password=...  (instead of ssl.key.pem.password)",
        ),
    ],
)
def test_the_line_to_change_is_the_one_that_is_wrong(arguments: tuple[str, ...], finding: str, change: str) -> None:
    told = examine("kafka:9092", *arguments)
    assert list(told.states) == [finding], told.text
    check(told, finding, change)


@pytest.mark.parametrize(
    ("variable", "finding", "change"),
    [
        ("AIOKPROD_LINGER_MS", "option", "AIOKPROD_LINGER_MS=...  (see: aiokprod config explain linger_ms)"),
        ("AIOKPROD_LINGR_MS", "unknown-option", "AIOKPROD_LINGER_MS=..."),
        ("AIOKPROD_DIALER", "unknown-option", "unset AIOKPROD_DIALER"),
        ("KAFKA_SECURITY_PROTOCOL", "option", "KAFKA_SECURITY_PROTOCOL=..."),
    ],
)
def test_a_variable_that_is_wrong_is_the_line_to_change(variable: str, finding: str, change: str) -> None:
    check(examine("kafka:9092", environ={variable: "abc"}), finding, change)


def test_the_name_of_a_file_is_not_taken_for_an_option(tmp_path: Path) -> None:
    none = tmp_path / "ssl_cafile.none"
    told = examine("kafka:9092", "--config", str(none))
    check(told, "option", "--config FILE  (one that can be read)")
    named = tmp_path / "acks.properties"
    named.write_text("=x\n")
    check(examine("kafka:9092", "--config", str(named)), "option", "NAME=VALUE  (in line 1)")
    named.write_text("acks=1\nacks=0\n")
    check(examine("kafka:9092", "--config", str(named)), "option", f"delete line 1 or 2 of {named}")
    named.write_text("linger.ms=1\nqueue.buffering.max.ms=2\n")
    check(examine("kafka:9092", "--config", str(named)), "option", "delete queue.buffering.max.ms")
    missing = examine("kafka:9092", *TLS, "-X", f"ssl_certfile={tmp_path}/ssl_keyfile.none")
    check(missing, "tls-files", "ssl.certfile=PATH")


def test_a_file_of_authorities_is_missing() -> None:
    told = examine("kafka:9092", "-X", "security.protocol=SSL", "-X", "ssl.ca.location=/nowhere/ca.pem")
    check(told, "tls-files", "ssl.cafile=PATH")


def test_the_package_of_a_codec_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "lz4.frame", None)
    check(examine("kafka:9092", "-X", "compression.type=lz4"), "codec", "compression.type=gzip")


# ---------------------------------------------------------------------- names, ports, addresses


def test_the_name_of_a_server_has_no_address(names: dict[str, list[str]]) -> None:
    names["kafka.example"] = []
    check(examine("kafka.example:9092"), "dns", "bootstrap.servers=NAME:9092")


def test_nothing_listens_at_the_port() -> None:
    check(examine(f"127.0.0.1:{free_port()}"), "refused", "bootstrap.servers=127.0.0.1:PORT")


def test_nothing_listens_at_an_ipv6_address() -> None:
    told = examine("[::1]:1")
    check(told, "refused", "bootstrap.servers=[::1]:PORT")
    assert "nothing listens at [::1]:1: [::1]:1: " in told.text


def test_the_port_belongs_to_another_program() -> None:
    with server(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n") as port:
        check(examine(f"127.0.0.1:{port}"), "not-kafka", "bootstrap.servers=HOST:PORT")


def test_a_server_that_does_not_answer_the_dial(monkeypatch: pytest.MonkeyPatch) -> None:
    async def hangs(*arguments: Any, **more: Any) -> Any:
        raise TimeoutError

    monkeypatch.setattr("aiokprod.cli.doctoring.servers.asyncio.open_connection", hangs)
    check(examine("127.0.0.1:9092"), "unreachable", "let TCP to port 9092 pass")


def test_a_name_with_an_ipv6_address_where_nothing_listens(cluster: MockCluster, names: dict[str, list[str]]) -> None:
    names["kafka.example"] = ["::1", "127.0.0.1"]
    told = examine(f"kafka.example:{port_of(cluster)}")
    check(told, "ipv6", f"bootstrap.servers=127.0.0.1:{port_of(cluster)}", "note")


def test_a_name_with_another_address_where_nothing_listens(cluster: MockCluster, names: dict[str, list[str]]) -> None:
    names["kafka.example"] = ["127.0.0.2", "127.0.0.1"]
    told = examine(f"kafka.example:{port_of(cluster)}")
    check(told, "some-addresses", f"bootstrap.servers=127.0.0.1:{port_of(cluster)}", "note")


def test_the_address_that_a_broker_advertises_has_no_name(cluster: MockCluster, names: dict[str, list[str]]) -> None:
    names["kafka-0.internal"] = []
    names["kafka.example"] = ["127.0.0.1"]
    port = port_of(cluster)
    cluster.advertise(1, "kafka-0.internal", 9092)
    told = examine(f"kafka.example:{port}")
    check(told, "advertised-listeners", "advertised.listeners=LISTENER://kafka.example:9092")
    assert "broker 1 advertises kafka-0.internal:9092" in told.text


def test_a_broker_advertises_localhost_to_other_machines(cluster: MockCluster, names: dict[str, list[str]]) -> None:
    names["kafka.example"] = ["127.0.0.1"]
    port = port_of(cluster)
    cluster.advertise(1, "localhost", free_port())
    told = examine(f"kafka.example:{port}")
    check(told, "advertised-listeners", "advertised.listeners=LISTENER://kafka.example:")
    assert "this machine itself, and not the broker" in told.text


def test_the_servers_belong_to_two_clusters(cluster: MockCluster) -> None:
    with MockCluster(1) as other:
        told = examine(f"{cluster.bootstrap_servers},{other.bootstrap_servers}")
    check(told, "two-clusters", f"bootstrap.servers={cluster.bootstrap_servers}")


def test_one_of_the_servers_is_gone(cluster: MockCluster) -> None:
    told = examine(f"127.0.0.1:{free_port()},{cluster.bootstrap_servers}")
    check(
        told, "refused", "bootstrap.servers=127.0.0.1:PORT  (the port in the broker's listeners; or start the broker)"
    )
    assert told.states["servers"] == "good", told.text


# ---------------------------------------------------------------------- TLS


def test_the_listener_speaks_tls_and_we_do_not(authority: trustme.CA) -> None:
    with tls_cluster(authority.issue_cert("127.0.0.1")) as cluster:
        check(examine(cluster.bootstrap_servers), "tls-expected", "security.protocol=SSL")


def test_we_speak_tls_and_the_listener_does_not(cluster: MockCluster) -> None:
    told = examine(cluster.bootstrap_servers, "-X", "security.protocol=SSL")
    check(told, "plaintext-expected", "security.protocol=PLAINTEXT")


def test_the_authority_is_not_trusted(authority: trustme.CA) -> None:
    with tls_cluster(authority.issue_cert("127.0.0.1")) as cluster:
        told = examine(cluster.bootstrap_servers, "-X", "security.protocol=SSL")
    check(told, "tls-authority", "ssl.cafile=FILE")


def test_the_broker_sends_its_certificate_without_the_one_between(authority: trustme.CA, ca_file: str) -> None:
    """The authority is the right one: a change of ssl.cafile would not help."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    leaf = authority.create_child_ca().issue_cert("127.0.0.1")
    with leaf.private_key_pem.tempfile() as key, leaf.cert_chain_pems[0].tempfile() as alone:
        context.load_cert_chain(alone, key)
    with MockCluster(1, ssl_context=context) as cluster:
        told = examine(cluster.bootstrap_servers, "-X", "security.protocol=SSL", "-X", f"ssl.ca.location={ca_file}")
    check(
        told,
        "tls-chain",
        "ssl.keystore.certificate.chain=PEM  (at the broker, or in its keystore: its certificate, then that of",
    )
    assert "or ssl.cafile=FILE, if another authority signed it" in told.changes["tls-chain"]
    issuer = re.search(r"issuer is '([^']+)'", told.text)
    assert issuer is not None and issuer[1] in told.changes["tls-chain"] and "trustme" in issuer[1], told.text
    assert "tls-authority" not in told.states


def test_the_authority_is_another_one_than_that_of_the_file(ca_file: str) -> None:
    """From outside it looks the same: both ways are told."""
    with tls_cluster(trustme.CA().issue_cert("127.0.0.1")) as cluster:
        told = examine(cluster.bootstrap_servers, "-X", "security.protocol=SSL", "-X", f"ssl.ca.location={ca_file}")
    check(told, "tls-chain", "or ssl.cafile=FILE, if another authority signed it")


def test_the_issuer_of_a_certificate_that_has_expired_too_is_not_known(authority: trustme.CA, ca_file: str) -> None:
    leaf = trustme.CA().issue_cert("127.0.0.1", not_after=datetime(2021, 1, 1, tzinfo=UTC))
    with tls_cluster(leaf) as cluster:
        told = examine(cluster.bootstrap_servers, "-X", "security.protocol=SSL", "-X", f"ssl.ca.location={ca_file}")
    check(told, "tls-chain", "then that of its issuer;")
    assert "issuer is" not in told.text


def test_the_file_has_the_certificate_between_without_its_root(authority: trustme.CA, tmp_path: Path) -> None:
    between = authority.create_child_ca()
    between.cert_pem.write_to_path(str(tmp_path / "between.pem"))
    with tls_cluster(between.issue_cert("127.0.0.1")) as cluster:
        told = examine(
            cluster.bootstrap_servers, "-X", "security.protocol=SSL", "-X", f"ssl.ca.location={tmp_path}/between.pem"
        )
    check(told, "tls-authority", "ssl.cafile=FILE  (with the certificate of the root too")


def test_the_certificate_is_for_another_name(authority: trustme.CA, ca_file: str) -> None:
    with tls_cluster(authority.issue_cert("kafka-0.example", "*.example")) as cluster:
        told = examine(cluster.bootstrap_servers, "-X", "security.protocol=SSL", "-X", f"ssl.ca.location={ca_file}")
        check(told, "tls-host-name", f"bootstrap.servers=kafka-0.example:{port_of(cluster)}")


@pytest.mark.parametrize(
    ("begins", "ends", "finding", "change"),
    [
        (
            datetime(2020, 1, 1, tzinfo=UTC),
            datetime(2021, 1, 1, tzinfo=UTC),
            "tls-expired",
            "renew the broker's certificate",
        ),
        (datetime(2098, 1, 1, tzinfo=UTC), datetime(2099, 1, 1, tzinfo=UTC), "clock-skew", "set this machine's clock"),
    ],
    ids=["expired", "not yet valid"],
)
def test_the_certificate_is_not_valid_now(
    authority: trustme.CA, ca_file: str, begins: datetime, ends: datetime, finding: str, change: str
) -> None:
    certificate = authority.issue_cert("127.0.0.1", not_before=begins, not_after=ends)
    with tls_cluster(certificate) as cluster:
        told = examine(cluster.bootstrap_servers, "-X", "security.protocol=SSL", "-X", f"ssl.ca.location={ca_file}")
    check(told, finding, change)


def test_the_broker_wants_a_certificate_of_ours(authority: trustme.CA, ca_file: str) -> None:
    context = server_context(authority.issue_cert("127.0.0.1"))
    context.verify_mode = ssl.CERT_REQUIRED
    authority.configure_trust(context)
    with MockCluster(1, ssl_context=context) as cluster:
        told = examine(cluster.bootstrap_servers, "-X", "security.protocol=SSL", "-X", f"ssl.ca.location={ca_file}")
    check(told, "client-certificate", "ssl.certfile=FILE")


# ---------------------------------------------------------------------- SASL


def sasl(mechanism: str = "PLAIN", password: str = PASSWORD) -> list[str]:
    pairs = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": "alice",
        "sasl.password": password,
    }
    return [word for name, value in pairs.items() for word in ("-X", f"{name}={value}")]


@pytest.fixture
def guarded() -> Iterator[MockCluster]:
    with MockCluster(1, sasl_mechanisms=["SCRAM-SHA-256"], users={"alice": PASSWORD}) as started:
        yield started


def test_the_right_password_is_fine(guarded: MockCluster) -> None:
    assert examine(guarded.bootstrap_servers, *sasl("SCRAM-SHA-256")).status == 0


def test_the_listener_wants_sasl_and_we_have_none(guarded: MockCluster) -> None:
    told = examine(guarded.bootstrap_servers)
    check(told, "sasl-wanted", "security.protocol=SASL_PLAINTEXT")
    assert "SCRAM-SHA-256" in told.text


def test_the_mechanism_is_not_offered(guarded: MockCluster) -> None:
    check(examine(guarded.bootstrap_servers, *sasl("PLAIN")), "sasl-mechanism", "sasl.mechanism=SCRAM-SHA-256")


def test_the_password_is_wrong(guarded: MockCluster) -> None:
    told = examine(guarded.bootstrap_servers, *sasl("SCRAM-SHA-256", "another-password"))
    check(told, "sasl-password", "sasl.password=")
    assert "another-password" not in told.text


def test_a_listener_with_tokens_only_is_nothing_for_a_command() -> None:
    with MockCluster(1, sasl_mechanisms=["OAUTHBEARER"], users={"alice": PASSWORD}) as cluster:
        wanted = examine(cluster.bootstrap_servers)
        check(wanted, "sasl-wanted", "sasl.mechanism=OAUTHBEARER and sasl_oauth_token_provider, in a program")
        other = examine(cluster.bootstrap_servers, *sasl("PLAIN"))
        check(other, "sasl-mechanism", "sasl.mechanism=OAUTHBEARER  (in a program, with sasl_oauth_token_provider")


def test_a_listener_with_tokens_too_is_used_by_the_mechanism_that_a_command_has() -> None:
    users = {"alice": PASSWORD}
    with MockCluster(1, sasl_mechanisms=["OAUTHBEARER", "SCRAM-SHA-512"], users=users) as cluster:
        check(examine(cluster.bootstrap_servers, *sasl("PLAIN")), "sasl-mechanism", "sasl.mechanism=SCRAM-SHA-512")


def test_we_speak_sasl_and_the_listener_does_not(cluster: MockCluster) -> None:
    told = examine(cluster.bootstrap_servers, *sasl())
    check(told, "sasl-not-spoken", f"security.protocol=PLAINTEXT  ({DELETE_SASL})")


def test_we_speak_tls_and_sasl_and_the_listener_neither(cluster: MockCluster, ca_file: str) -> None:
    options = (*sasl(), "-X", "security.protocol=SASL_SSL", "-X", f"ssl.cafile={ca_file}")
    told = examine(cluster.bootstrap_servers, *options)
    check(told, "plaintext-expected", f"security.protocol=PLAINTEXT  ({DELETE_SASL}, ssl.cafile)")
    assert "does not speak TLS, and no SASL" in told.text


def test_we_speak_tls_and_the_listener_only_sasl(guarded: MockCluster) -> None:
    told = examine(guarded.bootstrap_servers, "-X", "security.protocol=SSL")
    check(told, "plaintext-expected", "security.protocol=SASL_PLAINTEXT  (with sasl.mechanism, sasl.username, ")
    told = examine(guarded.bootstrap_servers, *sasl("SCRAM-SHA-256"), "-X", "security.protocol=SASL_SSL")
    check(told, "plaintext-expected", "security.protocol=SASL_PLAINTEXT  (or the port of its TLS listener")


def test_the_listener_speaks_tls_with_sasl_and_we_neither(authority: trustme.CA) -> None:
    certificate = authority.issue_cert("127.0.0.1")
    with tls_cluster(certificate, sasl_mechanisms=["PLAIN"], users={"alice": PASSWORD}) as cluster:
        told = examine(cluster.bootstrap_servers)
    check(told, "tls-expected", "security.protocol=SASL_SSL  (with sasl.mechanism, sasl.username, sasl.password)")


def test_every_wrong_option_is_a_finding(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("key.serializer=org.x\nssl.truststore.location=/t.jks\nlingr.ms=5\n")
    done = CliRunner().invoke(doctor, ["--json", "-b", "kafka:9092", "--config", str(file)])
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert [each["finding"] for each in found] == ["option", "tls-files", "unknown-option"]
    assert found[0]["change"] == "delete key.serializer"
    assert done.exit_code == 1


# ---------------------------------------------------------------------- brokers


def test_the_broker_is_too_old() -> None:
    with MockCluster(1, api_versions={"Produce": (0, 2)}) as cluster:
        check(examine(cluster.bootstrap_servers), "broker-too-old", "Kafka 2.1 or later")


@pytest.mark.parametrize(
    "offered",
    [{"Produce": None}, {"Metadata": None, 62: (0, 4)}],
    ids=["no Produce", "what only controllers have"],
)
def test_the_port_is_one_of_a_controller(offered: dict[int | str, tuple[int, int] | None]) -> None:
    with MockCluster(1, api_versions=offered) as cluster:
        check(examine(cluster.bootstrap_servers), "no-broker", "bootstrap.servers=HOST:PORT")


def test_a_broker_hangs_up_when_it_is_asked(cluster: MockCluster) -> None:
    cluster.drop_answer("Metadata", times=None)
    check(
        examine(cluster.bootstrap_servers), "no-answer", f"bootstrap.servers=HOST:PORT  (of another broker: {NOT_HERE}"
    )


def test_a_server_takes_connections_and_says_nothing(cluster: MockCluster) -> None:
    cluster.swallow_next("ApiVersions", times=None)
    told = examine(cluster.bootstrap_servers, "--timeout", "0.2")
    check(told, "no-answer", "bootstrap.servers=HOST:PORT  (of a broker that answers)")


def test_no_producer_id_is_given(cluster: MockCluster) -> None:
    cluster.fail_next("InitProducerId", ErrorCode.UNKNOWN_SERVER_ERROR, times=None)
    told = examine(cluster.bootstrap_servers)
    check(told, "producer-id", f"enable.idempotence=false  (until the brokers give one: {NOT_HERE}")
    assert examine(cluster.bootstrap_servers, "-X", "enable.idempotence=false").status == 0
    assert "UNKNOWN_SERVER_ERROR" in told.text


def test_a_broker_that_has_just_started_is_asked_again_for_a_producer_id(cluster: MockCluster) -> None:
    starting = cluster.fail_next("InitProducerId", ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, times=2)
    assert examine(cluster.bootstrap_servers).status == 0
    assert starting.hits == 2


def test_a_broker_stops_answering_while_it_is_examined(cluster: MockCluster) -> None:
    cluster.drop_answer("InitProducerId", times=None)
    check(examine(cluster.bootstrap_servers), "cluster", f"{NOT_HERE}: restart the broker that is named")


def test_a_broker_is_slow_while_it_is_examined(cluster: MockCluster) -> None:
    cluster.swallow_next("InitProducerId", times=None)
    told = examine(cluster.bootstrap_servers, "--timeout", "0.5")
    check(told, "cluster", "--timeout 2  (if the brokers are only slow")


# ---------------------------------------------------------------------- topics


def test_the_topic_does_not_exist_and_is_not_created(cluster: MockCluster) -> None:
    told = examine(cluster.bootstrap_servers, "audit")
    check(told, "topic-missing", "aiokprod topics create audit --yes")
    assert "auto.create.topics.enable=false" in told.text


@pytest.mark.parametrize("mistyped", ["ordres", "ORDERS", "order"])
def test_a_topic_that_is_only_mistyped_is_not_to_be_created(cluster: MockCluster, mistyped: str) -> None:
    told = examine(cluster.bootstrap_servers, mistyped)
    check(told, "topic-missing", f"write orders instead of {mistyped}, or: aiokprod topics create {mistyped} --yes")


def test_a_topic_that_brokers_would_create_is_a_note() -> None:
    with MockCluster(1) as cluster:
        told = examine(cluster.bootstrap_servers, "audit")
        check(told, "topic-missing", "aiokprod topics create audit", "note")
        assert cluster.topics == {}
        told = examine(cluster.bootstrap_servers, "audit", "-X", "allow.auto.create.topics=false")
        check(told, "topic-missing", "aiokprod topics create audit")


def test_the_name_of_the_topic_is_not_valid(cluster: MockCluster) -> None:
    check(examine(cluster.bootstrap_servers, "no spaces"), "topic-name", "correct the name")
    for name in ("\udcff", "a" * 70_000):
        told = examine(cluster.bootstrap_servers, name, "orders")
        check(told, "topic-name", "correct the name")
        assert "topic 'orders'" in told.text


def answer_topics_with(code: int) -> Callable[[Any, int], Any]:
    def change(answer: Any, version: int) -> Any:
        for topic in answer.topics:
            topic.error_code, topic.partitions = code, []
        return answer

    return change


@pytest.mark.parametrize("code", [ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.UNKNOWN_SERVER_ERROR])
def test_an_error_that_says_nothing_about_the_name_of_the_topic(cluster: MockCluster, code: ErrorCode) -> None:
    cluster.rewrite_answer("Metadata", answer_topics_with(code), times=None)
    told = examine(cluster.bootstrap_servers, "orders")
    check(told, "topic-error", "ask again in some seconds")
    assert code.name in told.text and "topic-name" not in told.states


def test_a_right_on_the_cluster_is_missing_for_the_topic(cluster: MockCluster) -> None:
    cluster.rewrite_answer("Metadata", answer_topics_with(ErrorCode.CLUSTER_AUTHORIZATION_FAILED), times=None)
    check(examine(cluster.bootstrap_servers, "orders"), "acl", "--operation Describe --cluster")


def test_a_partition_has_no_leader(cluster: MockCluster) -> None:
    cluster.move_leader("orders", 1, None)
    check(examine(cluster.bootstrap_servers, "orders"), "no-leader", "start broker 1")


def test_more_replicas_must_be_in_sync_than_there_are(cluster: MockCluster) -> None:
    cluster.create_topic("safe", min_insync_replicas=2)
    told = examine(cluster.bootstrap_servers, "safe")
    check(told, "min-insync", "aiokprod topics alter safe -o min.insync.replicas=1 --yes  (or give it more replicas")
    assert examine(cluster.bootstrap_servers, "safe", "-X", "acks=1").status == 0


def test_all_replicas_must_be_in_sync_which_no_restart_allows() -> None:
    with MockCluster(3) as cluster:
        cluster.create_topic("strict", min_insync_replicas=3)
        told = examine(cluster.bootstrap_servers, "strict")
        check(told, "min-insync", "aiokprod topics alter strict -o min.insync.replicas=2 --yes", "note")
        assert "while one of these brokers is away" in told.text


def test_the_command_of_a_finding_mends_it(cluster: MockCluster) -> None:
    cluster.create_topic("broken", min_insync_replicas=2, max_message_bytes=300)
    found = examine(cluster.bootstrap_servers, "broken")
    assert {name for name, state in found.states.items() if state == "wrong"} == {"min-insync", "message-size"}
    for name in ("min-insync", "message-size"):
        program, *arguments = found.changes[name].partition("  (")[0].split()
        assert program == "aiokprod"
        ok(cluster, *arguments)
    told = examine(cluster.bootstrap_servers, "broken", "--send")
    assert told.status == 0, told.text


def test_too_few_replicas_are_in_sync() -> None:
    with MockCluster(3) as cluster:
        cluster.create_topic("safe", min_insync_replicas=2)
        cluster.set_isr("safe", 0, [cluster.leader("safe") or 0])
        behind = [node for node in cluster.broker_ids if node != cluster.leader("safe")]
        check(examine(cluster.bootstrap_servers, "safe"), "replicas-behind", f"start broker {behind[0]}, {behind[1]}")


def test_one_partition_is_not_several() -> None:
    with MockCluster(3) as cluster:
        cluster.create_topic("safe", min_insync_replicas=2)
        assert "topic 'safe': 1 partition, with a leader" in examine(cluster.bootstrap_servers, "safe").text
        cluster.set_isr("safe", 0, [cluster.leader("safe") or 0])
        assert "topic 'safe': 1 partition has fewer than" in examine(cluster.bootstrap_servers, "safe").text


def test_we_send_larger_batches_than_the_topic_takes(cluster: MockCluster) -> None:
    cluster.create_topic("small", max_message_bytes=100_000)
    told = examine(cluster.bootstrap_servers, "small")
    check(
        told,
        "message-size",
        "max.request.size=100000  (or: aiokprod topics alter small -o max.message.bytes=1048576 --yes)",
    )
    told = examine(cluster.bootstrap_servers, "small", "-X", "max.request.size=100000", "-X", "batch.size=90000")
    assert told.status == 0, told.text
    cluster.create_topic("tiny", max_message_bytes=10_000)
    check(examine(cluster.bootstrap_servers, "tiny"), "message-size", "max.request.size=10000 and batch.size=10000")


@pytest.mark.parametrize("size", [1, 199, 300])
def test_a_topic_that_takes_next_to_nothing_is_what_has_to_change(cluster: MockCluster, size: int) -> None:
    cluster.create_topic("broken", max_message_bytes=size)
    told = examine(cluster.bootstrap_servers, "broken")
    check(told, "message-size", "aiokprod topics alter broken -o max.message.bytes=1048588 --yes  (Kafka's default)")
    assert "most records are refused" in told.text and "max.request.size" not in told.text


def allow(operations: int) -> Callable[[Any, int], MetadataResponse]:
    def change(answer: Any, version: int) -> MetadataResponse:
        for topic in answer.topics:
            topic.topic_authorized_operations = operations
        found: MetadataResponse = answer
        return found

    return change


def test_the_principal_may_not_write(cluster: MockCluster) -> None:
    cluster.rewrite_answer("Metadata", allow(1 << 3 | 1 << 8), times=None)
    check(examine(cluster.bootstrap_servers, "orders"), "acl", "--operation Write --operation Describe --topic orders")
    cluster.clear_faults()
    cluster.rewrite_answer("Metadata", allow(1 << 4), times=None)
    assert examine(cluster.bootstrap_servers, "orders").status == 0


def test_the_principal_may_not_even_see_the_topic(cluster: MockCluster) -> None:
    def hide(answer: Any, version: int) -> Any:
        for topic in answer.topics:
            topic.error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            topic.partitions = []
        return answer

    cluster.rewrite_answer("Metadata", hide, times=None)
    check(examine(cluster.bootstrap_servers, "orders"), "acl", "kafka-acls.sh --add")


def test_the_principal_may_not_see_the_options_of_the_topic(cluster: MockCluster) -> None:
    cluster.fail_next("DescribeConfigs", ErrorCode.TOPIC_AUTHORIZATION_FAILED, times=None)
    told = examine(cluster.bootstrap_servers, "orders")
    assert (told.status, told.states["options-hidden"], told.states["topic"]) == (0, "good", "good"), told.text
    assert "TOPIC_AUTHORIZATION_FAILED" in told.text


def test_the_principal_may_not_be_idempotent(cluster: MockCluster) -> None:
    def refuse(answer: Any, version: int) -> Any:
        answer.error_code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        return answer

    cluster.rewrite_answer("InitProducerId", refuse, times=None)
    check(examine(cluster.bootstrap_servers), "acl-idempotent", "--operation IdempotentWrite")
    assert examine(cluster.bootstrap_servers, "-X", "enable.idempotence=false").status == 0


# ---------------------------------------------------------------------- a record


def test_the_clocks_are_apart_and_the_broker_refuses_the_record() -> None:
    def yesterday() -> int:
        return time.time_ns() // 1_000_000 - 2 * 86_400_000

    with MockCluster(1, now_ms=yesterday) as cluster:
        cluster.create_topic("orders", message_timestamp_after_max_ms=3_600_000)
        check(examine(cluster.bootstrap_servers, "orders", "--send"), "clock-skew", "timedatectl set-ntp true")


def test_the_clocks_are_apart_and_the_broker_stamps_the_record() -> None:
    def yesterday() -> int:
        return time.time_ns() // 1_000_000 - 86_400_000

    with MockCluster(1, now_ms=yesterday) as cluster:
        cluster.create_topic("orders", message_timestamp_type="LogAppendTime")
        told = examine(cluster.bootstrap_servers, "orders", "--send")
    check(told, "clock-skew", "timedatectl set-ntp true")
    assert "86400 s apart" in told.text


def test_a_record_that_is_refused_says_why(cluster: MockCluster) -> None:
    cluster.create_topic("compacted", cleanup_policy="compact")
    told = examine(cluster.bootstrap_servers, "compacted", "--send")
    check(
        told,
        "record-refused",
        "aiokprod topics alter compacted -o cleanup.policy=delete --yes  (or send records with keys only",
    )


@pytest.mark.parametrize("code", [ErrorCode.POLICY_VIOLATION, ErrorCode.INVALID_RECORD])
def test_a_record_that_a_rule_of_the_brokers_refuses(cluster: MockCluster, code: ErrorCode) -> None:
    cluster.fail_next("Produce", code, times=None)
    told = examine(cluster.bootstrap_servers, "orders", "--send")
    check(told, "record-refused", f"{NOT_HERE}: a rule of the brokers refuses the record")
    assert code.name in told.text


def test_the_record_fails_and_its_error_is_told() -> None:
    async def scenario(network: VirtualNetwork, draw: Random) -> list[Finding]:
        async with MockCluster(1, network=network) as cluster:
            cluster.create_topic("orders")
            cluster.fail_next("Produce", "NOT_ENOUGH_REPLICAS", times=None)
            config = ProducerConfig(bootstrap_servers=cluster.bootstrap_servers, dialer=network.dial)
            return await of_record(config, "orders", 10.0)

    [finding] = run_virtual(scenario, seed=1)
    assert (finding.name, finding.is_trouble) == ("record-failed", True)
    assert "NOT_ENOUGH_REPLICAS" in finding.what
    assert finding.change.startswith("--timeout 40  (if the brokers are only slow; else nothing on the client's side")


def test_each_finding_has_a_test_and_is_on_the_page_of_the_command_line() -> None:
    root = Path(__file__).resolve().parents[3]
    sources = "".join(path.read_text() for path in (root / "aiokprod/cli/doctoring").glob("*.py"))
    sources += (root / "aiokprod/cli/doctor.py").read_text()
    page = (root / "docs/command_line.md").read_text()
    tests = Path(__file__).read_text()
    found = set(re.findall(r'Finding\(\s*"([a-z0-9-]+)"', sources)) | {"ipv6", "some-addresses"}
    assert len(found) >= 40
    assert {name for name in found if f"`{name}`" not in page} == set()
    names = re.sub(r"found = set.*", "", tests)  # not those of this test
    assert {name for name in found if f'"{name}"' not in names} == set()


def test_another_word_for_tls_is_told_with_kafkas() -> None:
    check(examine("kafka:9092", "-X", "security.protocol=TLS"), "option", "security.protocol=SSL")


def test_a_port_where_nothing_listens_is_told_without_a_call_of_python() -> None:
    told = examine(f"127.0.0.1:{free_port()}")
    assert "refused" in told.states and "Connect call" not in told.text and "Connection refused" in told.text
