"""Our producer and a real broker's TLS, mutual TLS and SASL: it gets in, or is told why not, and shows no password."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import ssl
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from delivery_check import DELIVERED, Told, judge, read_log
from sending import send_numbered

import aiokprod
from aiokprod import OAuthToken, Producer
from aiokprod.errors import AiokprodError, AuthenticationError, BootstrapError, ConnectionLostError, TlsError
from aiokprod.testing import KafkaCluster
from aiokprod.testing.kafka_cluster import ClusterSecurity, TlsFiles

pytestmark = pytest.mark.real

PASSWORD = "canary \\ 'é= 5f3a"
WRONG = "canary of another mine"
CANARY = "canary"
PACKAGE = str(Path(aiokprod.__file__).parent)
SESSION_MS = 4_000  # after which the broker hangs up on a client that has not authenticated again
RESETS = 8
PATIENCE_S = 120.0
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
SCOPE = "kafka:write"  # which the broker wants in a token


@pytest.fixture(scope="module")
def cluster(kafka_version: str) -> Iterator[KafkaCluster]:
    security = ClusterSecurity(client_auth="requested", users={"alice": PASSWORD}, oauth_scope=SCOPE)
    listeners = ("SASL_SSL", "SSL", "PLAINTEXT")
    config = {"connections.max.reauth.ms": str(SESSION_MS)}
    with KafkaCluster(
        brokers=1, version=kafka_version, listeners=listeners, security=security, proxied=True, config=config
    ) as started:
        started.create_topic("orders")
        yield started


def deliver(servers: str, **options: Any) -> tuple[int | None, str]:
    """Return the offset of a delivered record, and everything that the producer shows of itself on the way."""

    async def scenario() -> tuple[int | None, str]:
        async with Producer(servers, **options) as producer:
            metadata = await producer.send("orders", b"value")
            tasks = "".join(repr(task) for task in asyncio.all_tasks())
            shown = [repr(producer), repr(producer.config), *producer.config.explain(), str(vars(producer)), tasks]
            return metadata.offset, "".join([*shown, str(producer.health()), str(producer.metrics())])

    return asyncio.run(scenario())


def refused(servers: str, timeout: float = 30.0, **options: Any) -> AiokprodError:
    """Return the error of a start that must fail."""

    async def scenario() -> AiokprodError:
        producer = Producer(servers, **options)
        with pytest.raises(AiokprodError) as raised:
            await producer.start(timeout)
        assert CANARY not in repr(producer) + str(vars(producer))
        return raised.value

    return asyncio.run(scenario())


def traced(error: BaseException | None) -> str:
    """Return the error and its causes as a tool prints them that shows the variables of our frames."""
    shown: list[str] = []
    waiting, seen = [error], set()
    while waiting:
        one = waiting.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        waiting += [one.__cause__, one.__context__, *(cause for *_, cause in getattr(one, "tried", ()))]
        frames = [at for at in traceback.walk_tb(one.__traceback__) if at[0].f_code.co_filename.startswith(PACKAGE)]
        shown += [repr(one), str(one), str(vars(one)), *traceback.format_exception(one)]
        shown += traceback.StackSummary.extract(iter(frames), capture_locals=True).format()
    return "".join(shown)


def with_sasl(cluster: KafkaCluster, mechanism: str, password: str = PASSWORD) -> dict[str, Any]:
    return {
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": mechanism,
        "sasl_username": "alice",
        "sasl_password": password,
        "ssl_cafile": str(cluster.tls.authority),
    }


def token_of(expires_s: float = 300.0, **claims: object) -> OAuthToken:
    """Make an unsigned token, which Kafka's own unsecured validator takes; a claim of None is left out."""
    now = time.time()
    given = {"sub": f"{CANARY}-alice", "scope": SCOPE, "iat": now, "exp": now + expires_s} | claims
    parts = ({"alg": "none"}, {name: value for name, value in given.items() if value is not None})
    texts = (base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts)
    return OAuthToken(".".join((*texts, "")), (now + expires_s) * 1000)


def with_token(cluster: KafkaCluster, provider: Callable[[], Any]) -> dict[str, Any]:
    return {
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "OAUTHBEARER",
        "sasl_oauth_token_provider": provider,
        "ssl_cafile": str(cluster.tls.authority),
    }


# ---------------------------------------------------------------------- getting in
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_user_with_the_password_delivers_and_shows_it_nowhere(
    cluster: KafkaCluster, mechanism: str, caplog: pytest.LogCaptureFixture
) -> None:  # faults: S18
    with caplog.at_level(logging.DEBUG):
        offset, shown = deliver(cluster.bootstrap_for("SASL_SSL"), **with_sasl(cluster, mechanism))
    assert offset is not None
    assert "alice" in shown, "the configuration is shown, but for its secrets"
    assert caplog.records
    assert CANARY not in shown + caplog.text


def test_a_token_delivers_and_shows_nowhere(cluster: KafkaCluster, caplog: pytest.LogCaptureFixture) -> None:
    # faults: S18
    tokens: list[str] = []

    def provider() -> OAuthToken:
        token = token_of()
        tokens.append(token.token.reveal())
        return token

    with caplog.at_level(logging.DEBUG):
        offset, shown = deliver(cluster.bootstrap_for("SASL_SSL"), **with_token(cluster, provider))
    assert offset is not None
    assert len(tokens) == 1, "one call for all connections"
    assert "provider" in shown and caplog.records
    assert not any(part in shown + caplog.text for part in tokens[0].split(".")[1:] if part)


async def fetched() -> tuple[str, float | None]:
    await asyncio.sleep(0.01)
    token = token_of()
    return token.token.reveal(), token.expires_at_ms


class OfAiokafka:
    async def token(self) -> str:
        return token_of().token.reveal()

    def extensions(self) -> dict[str, str]:
        return {"traceId": "a b\tc"}


@pytest.mark.parametrize("provider", [fetched, OfAiokafka()], ids=["async function", "object of aiokafka"])
def test_a_token_of_any_kind_of_provider_delivers(cluster: KafkaCluster, provider: Any) -> None:
    assert deliver(cluster.bootstrap_for("SASL_SSL"), **with_token(cluster, provider))[0] is not None


def test_plain_tls_delivers(cluster: KafkaCluster) -> None:
    offset, _ = deliver(cluster.bootstrap_for("SSL"), security_protocol="SSL", ssl_cafile=str(cluster.tls.authority))
    assert offset is not None


@pytest.mark.slow
def test_mutual_tls_delivers_with_our_certificate_and_says_what_is_missing_without(tmp_path: Path) -> None:
    # faults: S4
    stranger = TlsFiles.issue(tmp_path).client_certificate
    with KafkaCluster(brokers=1, listeners=["SSL"], security=ClusterSecurity(client_auth="required")) as cluster:
        cluster.create_topic("orders")
        ours = {"security_protocol": "SSL", "ssl_cafile": str(cluster.tls.authority)}
        pem = cluster.tls.client_certificate
        assert deliver(cluster.bootstrap_servers, ssl_certfile=str(pem), ssl_keyfile=str(pem), **ours)[0] == 0
        text = pem.read_text()
        assert deliver(cluster.bootstrap_servers, ssl_cert_pem=text, ssl_key_pem=text, **ours)[0] == 1
        for certificate in ({}, {"ssl_certfile": str(stranger), "ssl_keyfile": str(stranger)}):
            error = refused(cluster.bootstrap_servers, **ours, **certificate)
            assert isinstance(error, TlsError)
            assert "client certificate" in str(error)


# ---------------------------------------------------------------------- staying in
@pytest.mark.slow_after(1)
@pytest.mark.parametrize("trouble", ["sessions end", "connections are reset", "tokens expire"])
def test_records_arrive_once_and_in_order_while(
    cluster: KafkaCluster, kafka_name: str, trouble: str, caplog: pytest.LogCaptureFixture
) -> None:  # faults: S15, S16, N15
    def wait_for_sessions() -> None:
        time.sleep(3 * SESSION_MS / 1000)

    def reset() -> None:
        deadline = time.monotonic() + PATIENCE_S
        while cluster.proxy.connections() < opened + RESETS:  # each time there is a new one to reset
            assert time.monotonic() < deadline, "no new connection"
            time.sleep(0.3)
            cluster.proxy.close_connections(abort=True)

    async def scenario() -> dict[str, Any]:
        async with Producer(cluster.bootstrap_for("SASL_SSL"), **options) as producer:
            doing = asyncio.create_task(asyncio.to_thread(fault))
            while not doing.done():
                for _ in range(5):
                    told.append(Told(len(told) % 3, len(told)))
                    send_numbered(producer, kafka_name, told[-1])
                await asyncio.sleep(0.01)
            await producer.flush()
            return producer.metrics()

    def short_lived() -> OAuthToken:
        asked.append(time.monotonic())
        return token_of(SESSION_MS / 1000 / 2)  # the session ends with the token

    told: list[Told] = []
    asked: list[float] = []
    opened = cluster.proxy.connections()
    fault = reset if trouble == "connections are reset" else wait_for_sessions
    options = with_token(cluster, short_lived) if trouble == "tokens expire" else with_sasl(cluster, "SCRAM-SHA-256")
    cluster.create_topic(kafka_name, partitions=3)
    with caplog.at_level(logging.DEBUG):
        metrics = asyncio.run(scenario())
    findings = judge(told, read_log(cluster.bootstrap_for("PLAINTEXT"), kafka_name, cluster.end_offsets(kafka_name)))
    assert not findings, findings
    assert {record.outcome for record in told} == {DELIVERED}
    assert metrics["connections_opened"] > 3, "none lasted"
    assert len(asked) > 3 or trouble != "tokens expire"
    assert CANARY not in caplog.text


# ---------------------------------------------------------------------- being kept out
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_wrong_password_is_an_authentication_error_that_shows_no_password(
    cluster: KafkaCluster, mechanism: str, caplog: pytest.LogCaptureFixture
) -> None:  # faults: S8, S18
    with caplog.at_level(logging.DEBUG):
        error = refused(cluster.bootstrap_for("SASL_SSL"), **with_sasl(cluster, mechanism, WRONG))
    assert isinstance(error, AuthenticationError)
    assert f"SASL {mechanism}" in str(error)
    assert cluster.bootstrap_for("SASL_SSL") in str(error)
    shown = traced(error)
    assert "self = <" in shown, "variables of our frames are shown"
    assert CANARY not in shown + caplog.text


REFUSED_TOKENS: dict[str, tuple[dict[str, Any], str]] = {
    # The client knows the expiry of the last one only from the token itself, which it does not read.
    "no name": ({"sub": None}, "invalid_token"),
    "an empty name": ({"sub": ""}, "invalid_token"),
    "no scope": ({"scope": None}, "insufficient_scope; wanted scope: [kafka:write]"),
    "another scope": ({"scope": "kafka:read"}, "insufficient_scope; wanted scope: [kafka:write]"),
    "expired": ({"expires_s": -60.0}, "invalid_token"),
}


@pytest.mark.slow
@pytest.mark.parametrize(("claims", "says"), REFUSED_TOKENS.values(), ids=REFUSED_TOKENS)
def test_a_token_that_the_broker_refuses_is_told_by_its_status_and_not_shown(
    cluster: KafkaCluster, claims: dict[str, Any], says: str, caplog: pytest.LogCaptureFixture
) -> None:  # faults: S14, S18
    def provider() -> str:
        tokens.append(token_of(**claims).token.reveal())
        return tokens[-1]

    tokens: list[str] = []
    with caplog.at_level(logging.DEBUG):
        error = refused(cluster.bootstrap_for("SASL_SSL"), **with_token(cluster, provider))
    assert isinstance(error, AuthenticationError)
    assert f"SASL OAUTHBEARER: the broker refused the token: {says}" in str(error)
    assert error.code == 58
    shown = traced(error)
    assert "self = <" in shown, "variables of our frames are shown"
    for token in tokens:
        assert not any(part in shown + caplog.text for part in token.split(".")[1:] if part)


def test_a_token_that_expired_is_not_sent(cluster: KafkaCluster) -> None:  # faults: S14
    error = refused(cluster.bootstrap_for("SASL_SSL"), **with_token(cluster, lambda: token_of(-60.0)))
    assert isinstance(error, AuthenticationError)
    assert "returned a token that expired 60 s ago" in str(error)


def test_a_broker_of_an_unknown_authority_never_hears_the_password(
    cluster: KafkaCluster, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:  # faults: S1, S18
    options = with_sasl(cluster, "PLAIN") | {"ssl_cafile": str(TlsFiles.issue(tmp_path).authority)}
    with caplog.at_level(logging.DEBUG):
        error = refused(cluster.bootstrap_for("SASL_SSL"), **options)
    assert isinstance(error, TlsError)
    assert isinstance(error.__cause__, ssl.SSLCertVerificationError)
    assert "an authority that is not trusted here" in str(error)
    assert CANARY not in traced(error) + caplog.text


def test_a_broker_of_another_name_is_refused(cluster: KafkaCluster) -> None:  # faults: S2
    async def dialer(
        host: str, port: int, context: ssl.SSLContext | None, factory: Callable[[], asyncio.Protocol]
    ) -> asyncio.Transport:
        """Dial, in place of a name server that knows kafka.example."""
        connecting = asyncio.get_running_loop().create_connection
        transport, _ = await connecting(factory, "127.0.0.1", port, ssl=context, server_hostname=host)
        return transport

    port = cluster.bootstrap_for("SSL").rpartition(":")[2]
    options = {"security_protocol": "SSL", "ssl_cafile": str(cluster.tls.authority), "dialer": dialer}
    error = refused(f"kafka.example:{port}", **options)
    assert isinstance(error, TlsError)
    assert "certificate is not for kafka.example" in str(error)
    assert deliver(f"localhost:{port}", **options)[0] is not None


@pytest.mark.parametrize("listener", ["SSL", "SASL_SSL"])
def test_a_plaintext_client_at_a_tls_port_is_told_so(cluster: KafkaCluster, listener: str) -> None:  # faults: S5
    error = refused(cluster.bootstrap_for(listener))
    assert isinstance(error, TlsError)
    assert "this is a TLS port; set security_protocol to SSL or SASL_SSL" in str(error)


def test_a_password_is_not_sent_in_the_clear_to_a_tls_port(cluster: KafkaCluster) -> None:  # faults: S5, S18
    options = with_sasl(cluster, "PLAIN") | {"security_protocol": "SASL_PLAINTEXT"}
    del options["ssl_cafile"]
    error = refused(cluster.bootstrap_for("SASL_SSL"), **options)
    assert isinstance(error, TlsError)
    assert CANARY not in traced(error)


def test_a_tls_client_at_a_plaintext_port_is_told_so(cluster: KafkaCluster) -> None:  # faults: S5
    authority = str(cluster.tls.authority)
    error = refused(cluster.bootstrap_for("PLAINTEXT"), security_protocol="SSL", ssl_cafile=authority)
    assert isinstance(error, TlsError)
    assert "check that this is the port of a TLS listener" in str(error)


@pytest.mark.slow
def test_sasl_where_none_is_wanted_and_none_where_it_is(cluster: KafkaCluster) -> None:  # faults: S9
    unasked = with_sasl(cluster, "PLAIN") | {"security_protocol": "SASL_PLAINTEXT"}
    del unasked["ssl_cafile"]
    error = refused(cluster.bootstrap_for("PLAINTEXT"), **unasked)
    assert isinstance(error, AuthenticationError)
    assert "does not speak SASL" in str(error)
    authority = str(cluster.tls.authority)
    error = refused(cluster.bootstrap_for("SASL_SSL"), timeout=5.0, security_protocol="SSL", ssl_cafile=authority)
    assert isinstance(error, BootstrapError)
    ((_, _, cause),) = error.tried
    assert isinstance(cause, ConnectionLostError)
    assert "does this listener want SASL?" in str(error)
