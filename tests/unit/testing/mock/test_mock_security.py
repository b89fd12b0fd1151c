"""SASL and TLS of the mock cluster."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import ssl
from typing import Any

import pytest
import trustme
from mock_batches import batch
from mock_client import RawClient
from mock_requests import WHO_ASKS

from aiokprod.testing import MockCluster
from aiokprod.testing.mock.sasl_gate import SaslGate
from aiokprod.testing.mock.scram_server import AuthenticationFailedError, ServerMechanism, start
from aiokprod.wire.messages.api_versions import ApiVersionsResponse
from aiokprod.wire.messages.metadata import MetadataRequest, MetadataResponse
from aiokprod.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from aiokprod.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

USERS = {"alice": "secret", "a,b=c": "pässword"}
SCRAM = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}


class ScramClient:
    """A client of RFC 5802, with the values of the exchange in hand."""

    def __init__(self, mechanism: str, user: str, password: str) -> None:
        self.hash = SCRAM[mechanism]
        self.password = password
        name = user.replace("=", "=3D").replace(",", "=2C")
        self.first_bare = f"n={name},r=clientnonce".encode()
        self.first = b"n,," + self.first_bare

    def final(self, server_first: bytes, *, nonce: bytes | None = None) -> bytes:
        fields = dict(part.split(b"=", 1) for part in server_first.split(b","))
        salt, iterations = base64.b64decode(fields[b"s"]), int(fields[b"i"])
        assert fields[b"r"].startswith(b"clientnonce") and len(fields[b"r"]) > 20 and iterations >= 4096
        bare = b"c=biws,r=" + (nonce or fields[b"r"])
        salted = hashlib.pbkdf2_hmac(self.hash, self.password.encode(), salt, iterations)
        everything = self.first_bare + b"," + server_first + b"," + bare
        client_key = hmac.digest(salted, b"Client Key", self.hash)
        signature = hmac.digest(hashlib.new(self.hash, client_key).digest(), everything, self.hash)
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        server_key = hmac.digest(salted, b"Server Key", self.hash)
        self.verifier = b"v=" + base64.b64encode(hmac.digest(server_key, everything, self.hash))
        return bare + b",p=" + base64.b64encode(proof)


# ---------------------------------------------------------------------- the step machines


@pytest.mark.parametrize("mechanism", SCRAM)
@pytest.mark.parametrize("user", USERS)
def test_scram_lets_the_right_one_in_and_proves_itself(mechanism: str, user: str) -> None:
    server, client = start(mechanism, USERS), ScramClient(mechanism, user, USERS[user])
    final = client.final(server.step(client.first))
    assert server.user is None
    assert server.step(final) == client.verifier and server.user == user


def scram_with(password: str = "secret", user: str = "alice", nonce: bytes | None = None) -> ServerMechanism:
    server, client = start("SCRAM-SHA-256", USERS), ScramClient("SCRAM-SHA-256", user, password)
    server.step(client.final(server.step(client.first), nonce=nonce))
    return server


@pytest.mark.parametrize("wrong", [{"password": "guess"}, {"user": "mallory"}, {"nonce": b"clientnonceother"}])
def test_scram_keeps_others_out_without_naming_a_password(wrong: dict[str, Any]) -> None:
    with pytest.raises(AuthenticationFailedError) as failed:
        scram_with(**wrong)
    assert "secret" not in str(failed.value) and "guess" not in str(failed.value)


@pytest.mark.parametrize("first", [b"", b"n,,", b"p=tls,,n=alice,r=x", b"n,,r=x", b"n,,n=alice", b"n,,n=alice,r="])
def test_scram_refuses_a_first_message_that_is_none(first: bytes) -> None:
    with pytest.raises(AuthenticationFailedError):
        start("SCRAM-SHA-512", USERS).step(first)


@pytest.mark.parametrize("final", [b"", b"c=biws,r=x,p=%%%", b"garbage"])
def test_scram_refuses_a_final_message_that_is_none(final: bytes) -> None:
    server = start("SCRAM-SHA-256", USERS)
    server.step(b"n,,n=alice,r=x")
    with pytest.raises(AuthenticationFailedError):
        server.step(final)


@pytest.mark.parametrize(
    "token", [b"", b"\0alice", b"\0alice\0guess", b"\0mallory\0secret", b"a\0b\0c\0d", b"\0\xff\0x"]
)
def test_plain_refuses_what_is_not_right(token: bytes) -> None:
    server = start("PLAIN", USERS)
    with pytest.raises(AuthenticationFailedError):
        server.step(token)
    assert server.user is None


# ---------------------------------------------------------------------- over the wire


def guarded(**options: Any) -> MockCluster:
    return MockCluster(1, sasl_mechanisms=["PLAIN", "SCRAM-SHA-256"], users=USERS, **options)


async def log_in(client: RawClient, *, token: bytes = b"\0alice\0secret", version: int = 2) -> Any:
    shaken = await client.ask(SaslHandshakeRequest(mechanism="PLAIN"), SaslHandshakeResponse, 1)
    assert shaken.error_code == 0
    return await client.ask(SaslAuthenticateRequest(auth_bytes=token), SaslAuthenticateResponse, version)


def test_nothing_but_versions_is_served_before_authentication() -> None:
    async def scenario() -> None:
        async with guarded() as cluster:
            async with RawClient(cluster) as client:
                versions = await client.ask(WHO_ASKS, ApiVersionsResponse, 3)
                assert {17, 36} <= {key.api_key for key in versions.api_keys}
                client.send(MetadataRequest(), 12)
                assert await client.is_closed()
            async with RawClient(cluster) as client:
                assert (await log_in(client)).error_code == 0
                await client.ask(MetadataRequest(), MetadataResponse, 12)

    asyncio.run(scenario())


@pytest.mark.parametrize("version", [0, 1, 2])
def test_a_wrong_password_is_58_and_the_connection_is_closed(version: int) -> None:
    async def scenario() -> None:
        async with guarded() as cluster, RawClient(cluster) as client:
            answer = await log_in(client, token=b"\0alice\0guess", version=version)
            assert answer.error_code == 58 and "guess" not in answer.error_message
            assert await client.is_closed()

    asyncio.run(scenario())


def test_an_unknown_mechanism_is_33_with_those_there_are() -> None:
    async def scenario() -> None:
        async with guarded() as cluster, RawClient(cluster) as client:
            answer = await client.ask(SaslHandshakeRequest(mechanism="GSSAPI"), SaslHandshakeResponse, 1)
            assert (answer.error_code, answer.mechanisms) == (33, ["PLAIN", "SCRAM-SHA-256"])
            assert await client.is_closed()

    asyncio.run(scenario())


def test_a_token_without_a_handshake_is_refused() -> None:
    async def scenario() -> None:
        async with guarded() as cluster, RawClient(cluster) as client:
            request = SaslAuthenticateRequest(auth_bytes=b"\0alice\0secret")
            assert (await client.ask(request, SaslAuthenticateResponse, 2)).error_code == 58

    asyncio.run(scenario())


@pytest.mark.parametrize("right", [True, False])
def test_after_handshake_0_tokens_come_without_a_header(right: bool) -> None:
    async def scenario() -> None:
        async with guarded() as cluster, RawClient(cluster) as client:
            await client.ask(SaslHandshakeRequest(mechanism="SCRAM-SHA-256"), SaslHandshakeResponse, 0)
            scram = ScramClient("SCRAM-SHA-256", "alice", "secret" if right else "guess")
            client.send_frame(scram.first)
            client.send_frame(scram.final(await client.frame()))
            if right:
                assert await client.frame() == scram.verifier
                await client.ask(MetadataRequest(), MetadataResponse, 12)
            else:
                assert await client.is_closed()

    asyncio.run(scenario())


def test_a_session_that_has_ended_is_cut_unless_it_was_renewed() -> None:
    gate = SaslGate(["PLAIN"], USERS, session_lifetime_s=60)

    def renew(now_s: float) -> None:
        gate.begin("PLAIN", raw=False)
        gate.step(b"\0alice\0secret", now_s)

    renew(now_s=100)
    assert gate.lets(MetadataRequest.API_KEY, 159.9) and not gate.lets(MetadataRequest.API_KEY, 160)
    assert gate.lets(SaslHandshakeRequest.API_KEY, 160)
    renew(now_s=170)
    assert gate.lets(MetadataRequest.API_KEY, 229) and not gate.lets(MetadataRequest.API_KEY, 230)


def test_the_lifetime_of_a_session_is_told_and_ended() -> None:
    async def scenario() -> None:
        async with guarded(session_lifetime_ms=1) as cluster, RawClient(cluster) as client:
            assert (await log_in(client)).session_lifetime_ms == 1
            await asyncio.sleep(0.002)
            client.send(MetadataRequest(), 12)
            assert await client.is_closed()

    asyncio.run(scenario())


def test_authentication_can_be_failed_by_script() -> None:
    async def scenario() -> None:
        async with guarded() as cluster, RawClient(cluster) as client:
            cluster.fail_next("SaslAuthenticate", 58, message="credentials of another world")
            assert (await log_in(client)).error_message == "credentials of another world"
            assert await client.is_closed()

    asyncio.run(scenario())


def test_a_listener_without_sasl_refuses_a_handshake_and_goes_on() -> None:
    async def scenario() -> None:
        async with MockCluster(1) as cluster, RawClient(cluster) as client:
            for _ in range(2):
                answer = await client.ask(SaslHandshakeRequest(mechanism="PLAIN"), SaslHandshakeResponse, 1)
                assert answer.error_code == 34  # ILLEGAL_SASL_STATE

    asyncio.run(scenario())


def test_passwords_are_in_no_repr() -> None:
    cluster = guarded()
    assert "secret" not in repr(cluster) + repr(cluster._settings)


def test_tls_listeners_serve_and_leave_nothing_behind() -> None:
    authority = trustme.CA()
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(server)
    trusting = ssl.create_default_context()
    authority.configure_trust(trusting)

    async def scenario() -> None:
        async with guarded(ssl_context=server) as cluster, RawClient(cluster, context=trusting) as client:
            cluster.create_topic("t")
            await log_in(client)
            assert (await client.produce("t", batch(b"x" * 100_000))).error_code == 0
            async with RawClient(cluster) as plaintext:
                plaintext.send(WHO_ASKS, 3)
                assert (await plaintext.reader.read(1)) in (b"", b"\x15")  # a TLS alert, or nothing
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(scenario())
