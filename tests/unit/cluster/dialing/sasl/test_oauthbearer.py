"""OAUTHBEARER: the message of RFC 7628, and what a broker may answer to it."""

from __future__ import annotations

import base64
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiokprod.cluster.dialing.sasl.mechanism import Finished, Reply
from aiokprod.cluster.dialing.sasl.oauthbearer import MAX_REFUSAL_BYTES, OAuthBearer
from aiokprod.config import OAuthToken
from aiokprod.errors import AuthenticationError
from aiokprod.testing.mock.scram_server import AuthenticationFailedError, OAuthBearerServer

CANARY = "canary-t0ken"
JWT = ".".join(base64.urlsafe_b64encode(part * 3).decode().rstrip("=") for part in (b"header", b"claims", b"signature"))


def begun(token: str = CANARY) -> OAuthBearer:
    mechanism = OAuthBearer(OAuthToken(token))
    mechanism.start()
    return mechanism


def refused(challenge: bytes, token: str = CANARY) -> OAuthBearer:
    """Return a mechanism whose token was refused, and which has said so."""
    mechanism = begun(token)
    assert mechanism.step(challenge) == Reply(b"\x01")
    return mechanism


def test_the_first_message_is_that_of_rfc_7628() -> None:
    assert OAuthBearer(OAuthToken("abc.def==")).start() == b"n,,\x01auth=Bearer abc.def==\x01\x01"
    more = OAuthToken("t", None, {"logicalCluster": "lkc-1", "identityPoolId": "pool 2"})
    assert OAuthBearer(more).start() == b"n,,\x01auth=Bearer t\x01logicalCluster=lkc-1\x01identityPoolId=pool 2\x01\x01"


names = st.text("abcXYZ", min_size=1).filter(lambda name: name.lower() != "auth")
values = st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E), min_size=1)


@given(st.text("aZ09-._~+/", min_size=1), st.dictionaries(names, values, max_size=3))
def test_a_server_reads_what_was_put_in_and_nothing_else(token: str, extensions: dict[str, str]) -> None:
    # faults: S14
    server = OAuthBearerServer({"alice": token})
    assert server.step(OAuthBearer(OAuthToken(token, None, extensions)).start()) == b""
    assert server.user == "alice"
    assert server.extensions == extensions


def test_an_empty_answer_is_success() -> None:
    assert begun().step(b"") == Finished()


def test_a_refusal_is_acknowledged_by_one_byte_and_told() -> None:
    mechanism = refused(b'{"status":"insufficient_scope","scope":"kafka","openid-configuration":"https://id"}')
    assert mechanism.reason("the text of the error") == (
        "the broker refused the token: insufficient_scope; wanted scope: kafka; see: https://id"
    )


def test_a_broker_that_refuses_at_once_is_told_in_its_own_words() -> None:
    assert begun().reason("Invalid credentials") == "Invalid credentials"


@pytest.mark.parametrize("last", [b"", b"more", b'{"status":"ok"}'])
def test_a_broker_that_goes_on_after_its_refusal_is_not_trusted(last: bytes) -> None:
    with pytest.raises(AuthenticationError, match="invalid_token") as raised:
        refused(b'{"status":"invalid_token"}').step(last)
    assert raised.value.code == 58


@pytest.mark.parametrize(
    "challenge",
    [
        b"x",
        b"\xff\xfe",
        b"[]",
        b"{}",
        b"null",
        b'"invalid_token"',
        b'{"status":5}',
        b'{"status":"x"',
        b"[" * 10_000,
        b'{"status":' * 1_000,
        b'{"status":"' + b"x" * MAX_REFUSAL_BYTES + b'"}',
        b'{"status":' + b"9" * 10_000 + b"}",
    ],
)
def test_a_message_that_is_no_refusal_ends_the_exchange(challenge: bytes) -> None:
    with pytest.raises(AuthenticationError, match=f"{len(challenge)} bytes that are no refusal"):
        begun().step(challenge)


def test_only_texts_of_a_refusal_are_told_and_control_characters_are_not() -> None:
    told = refused(b'{"status":"a\\u0001\\nb","scope":["x"],"openid-configuration":null}').reason("")
    assert told == "the broker refused the token: a\\x01\\nb"


@pytest.mark.parametrize("token", [CANARY, JWT])
def test_a_refusal_that_repeats_the_token_is_told_without(token: str) -> None:  # faults: S18
    for part in (token, *token.split(".")):
        challenge = json.dumps({"status": f"no such token: {part}", "scope": part}).encode()
        told = refused(challenge, token).reason("")
        assert part not in told
        assert "no such token: ***" in told


def test_nothing_of_a_token_shows() -> None:  # faults: S18
    mechanism = OAuthBearer(OAuthToken(CANARY))
    first = mechanism.start()
    assert CANARY not in f"{mechanism!r} {first!r} {Reply(first)!r}"


# ---------------------------------------------------------------------- against the mock's half


def test_the_mock_refuses_as_kafka_does() -> None:
    server, client = OAuthBearerServer({"alice": "other"}), OAuthBearer(OAuthToken("mine"))
    outcome = client.step(server.step(client.start()))
    assert outcome == Reply(b"\x01")
    with pytest.raises(AuthenticationFailedError, match="invalid_token"):
        server.step(b"\x01")
    assert server.user is None


@pytest.mark.parametrize("message", [b"", b"n,,", b"n,,\x01auth=Basic x\x01\x01", b"n,,\x01auth=Bearer a b\x01\x01"])
def test_the_mock_refuses_what_is_no_first_message(message: bytes) -> None:
    with pytest.raises(AuthenticationFailedError):
        OAuthBearerServer({"alice": "a"}).step(message)


def test_the_mock_wants_the_one_byte() -> None:
    server = OAuthBearerServer({})
    server.step(b"n,,\x01auth=Bearer x\x01\x01")
    with pytest.raises(AuthenticationFailedError, match="single byte"):
        server.step(b"n,,\x01auth=Bearer x\x01\x01")
