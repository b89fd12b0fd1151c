"""SCRAM: the published exchanges, and a broker that lies at every step."""

from __future__ import annotations

import base64
import hashlib
import hmac

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiokprod.cluster.dialing.sasl.mechanism import Finished, HashWork, Reply
from aiokprod.cluster.dialing.sasl.scram import (
    MAX_ITERATIONS,
    MAX_MESSAGE_BYTES,
    MIN_ITERATIONS,
    SaltedPassword,
    Scram,
    ScramSha256,
    ScramSha512,
    saslname,
)
from aiokprod.config import Secret
from aiokprod.errors import AuthenticationError, ConfigError

CLIENT_NONCE = "rOprNGfwEbeRWgbNEkqO"
SERVER_NONCE = CLIENT_NONCE + "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
SALT = "W22ZaJ0SNY7soEsUEjb6gQ=="


def begun(password: str = "pencil") -> Scram:
    """Return the exchange of RFC 7677, at the point where the broker's first message is due."""
    mechanism = ScramSha256("user", Secret(password), nonce=CLIENT_NONCE)
    mechanism.start()
    return mechanism


def at_the_signature() -> Scram:
    mechanism = begun()
    work = mechanism.step(f"r={SERVER_NONCE},s={SALT},i=4096".encode())
    assert isinstance(work, HashWork)
    mechanism.hashed(work.run())
    return mechanism


def test_the_exchange_of_rfc_7677_is_reproduced() -> None:
    mechanism = ScramSha256("user", Secret("pencil"), nonce=CLIENT_NONCE)
    assert mechanism.start() == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    work = mechanism.step(f"r={SERVER_NONCE},s={SALT},i=4096".encode())
    assert isinstance(work, HashWork)
    reply = mechanism.hashed(work.run())
    assert isinstance(reply, Reply)
    assert reply.token == f"c=biws,r={SERVER_NONCE},p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=".encode()
    assert mechanism.step(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=") == Finished()


class Rfc5802(Scram):
    """The SHA-1 mechanism, which no client may use and which RFC 5802 shows."""

    __slots__ = ()
    name = "SCRAM-SHA-1"
    hash_name = "sha1"


def test_the_exchange_of_rfc_5802_is_reproduced() -> None:
    mechanism = Rfc5802("user", Secret("pencil"), nonce="fyko+d2lbbFgONRv9qkxdawL")
    assert mechanism.start() == b"n,,n=user,r=fyko+d2lbbFgONRv9qkxdawL"
    work = mechanism.step(b"r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,s=QSXCR+Q6sek8bf92,i=4096")
    assert isinstance(work, HashWork)
    reply = mechanism.hashed(work.run())
    assert isinstance(reply, Reply)
    assert reply.token == b"c=biws,r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,p=v0X8v3Bz2T0CJGbJQyF0X+HI4Ts="
    assert mechanism.step(b"v=rmF9pqV8S7suAoZWja4dJRkFsKQ=") == Finished()


def honest_exchange(mechanism: Scram, password: str, username: str) -> None:
    """Play the broker's half, written independently from the RFC; assert that it accepts us."""
    name = mechanism.hash_name
    first = mechanism.start().decode()
    assert first.startswith(f"n,,n={saslname(username)},r=")
    nonce = first.partition(",r=")[2] + "server"
    server_first = f"r={nonce},s={base64.b64encode(b'salty').decode()},i=4096"
    work = mechanism.step(server_first.encode())
    assert isinstance(work, HashWork)
    reply = mechanism.hashed(work.run())
    assert isinstance(reply, Reply)
    bare, _, proof = reply.token.decode().partition(",p=")
    salted = hashlib.pbkdf2_hmac(name, password.encode(), b"salty", 4096)
    auth = ",".join((first[3:], server_first, bare)).encode()
    client_key = hmac.digest(salted, b"Client Key", name)
    stored_key = hashlib.new(name, client_key).digest()
    signature = hmac.digest(stored_key, auth, name)
    found_key = bytes(a ^ b for a, b in zip(base64.b64decode(proof), signature, strict=True))
    assert hashlib.new(name, found_key).digest() == stored_key
    server_signature = hmac.digest(hmac.digest(salted, b"Server Key", name), auth, name)
    assert mechanism.step(b"v=" + base64.b64encode(server_signature)) == Finished()


@pytest.mark.parametrize("kind", [ScramSha256, ScramSha512])
@pytest.mark.parametrize("username", ["a", "a,b", "a=b", "=2C,=3D", "Ünïcödé ☃", "u" * 10_000])
@pytest.mark.parametrize("password", ["p", ",=,", "pässwörd", "ﬁ\u00a0x", "p" * 10_000])  # faults: S13
def test_a_broker_that_knows_the_password_lets_us_in(kind: type[Scram], username: str, password: str) -> None:
    honest_exchange(kind(username, Secret(password)), password, username)


def test_separators_in_user_names_are_escaped() -> None:  # faults: S13
    assert saslname("a,b=c") == "a=2Cb=3Dc"
    assert saslname("=2C") == "=3D2C"


def test_passwords_are_hashed_as_typed_because_kafka_stores_them_so() -> None:  # faults: S13
    work = begun("\ufb01").step(f"r={SERVER_NONCE},s={SALT},i=4096".encode())
    assert isinstance(work, HashWork)
    assert work.run() == hashlib.pbkdf2_hmac("sha256", "\ufb01".encode(), base64.b64decode(SALT), 4096)


@pytest.mark.parametrize(("username", "password"), [("", "p"), ("u", "")])
def test_empty_credentials_are_refused_before_anything_is_sent(username: str, password: str) -> None:  # faults: S13
    with pytest.raises(ConfigError, match="not empty"):
        ScramSha256(username, Secret(password))


@pytest.mark.parametrize(
    ("first", "why"),
    [
        (f"r={CLIENT_NONCE},s={SALT},i=4096", "nonce"),
        (f"r=another{SERVER_NONCE},s={SALT},i=4096", "nonce"),
        (f"r={CLIENT_NONCE[:-1]}Zmore,s={SALT},i=4096", "nonce"),
        (f"r={SERVER_NONCE} ,s={SALT},i=4096", "nonce"),
        (f"r={SERVER_NONCE}\x00,s={SALT},i=4096", "nonce"),
        (f"r={SERVER_NONCE},s={SALT},i=0", "iterations"),
        (f"r={SERVER_NONCE},s={SALT},i=1", "iterations"),
        (f"r={SERVER_NONCE},s={SALT},i={MIN_ITERATIONS - 1}", "iterations"),
        (f"r={SERVER_NONCE},s={SALT},i={MAX_ITERATIONS + 1}", "iterations"),
        (f"r={SERVER_NONCE},s={SALT},i={2**31 - 1}", "iterations"),  # faults: S12
        (f"r={SERVER_NONCE},s={SALT},i=-4096", "count"),
        (f"r={SERVER_NONCE},s={SALT},i=+4096", "count"),
        (f"r={SERVER_NONCE},s={SALT},i=4_096", "count"),
        (f"r={SERVER_NONCE},s={SALT},i= 4096", "count"),
        (f"r={SERVER_NONCE},s={SALT},i=\u0664\u0660\u0669\u0666", "count"),
        (f"r={SERVER_NONCE},s={SALT},i={'9' * 5000}", "count"),
        (f"r={SERVER_NONCE},s={SALT},i=", "attributes"),
        (f"r={SERVER_NONCE},s={SALT}", "nonce, salt and iterations"),
        (f"r={SERVER_NONCE},i=4096,s={SALT}", "nonce, salt and iterations"),
        (f"s={SALT},r={SERVER_NONCE},i=4096", "nonce, salt and iterations"),
        (f"r={SERVER_NONCE},s=,i=4096", "attributes"),
        (f"r={SERVER_NONCE},s=!!!!,i=4096", "salt"),
        (f"r={SERVER_NONCE},s=====,i=4096", "salt"),
        (f"r={SERVER_NONCE},s=W22Z\nW22Z,i=4096", "salt"),
        (f"r={SERVER_NONCE},s={SALT[:-1]},i=4096", "salt"),
        (f"r={SERVER_NONCE},s={SALT},i=4096,i=4096", "twice"),
        (f"r={SERVER_NONCE},s={SALT},s={SALT},i=4096", "twice"),
        (f"m=ext,r={SERVER_NONCE},s={SALT},i=4096", "must be understood"),
        (f"r={SERVER_NONCE},s={SALT},i=4096,m=ext", "must be understood"),
        ("v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=", "nonce, salt and iterations"),
        ("e=unknown-user", "unknown-user"),
        ("", "attributes"),
        (",", "attributes"),
        ("rubbish", "attributes"),
        ("\u00e4=1", "attributes"),
        ("r=" + "x" * MAX_MESSAGE_BYTES, "bytes"),
    ],
)
def test_a_hostile_first_message_is_refused_before_hashing(first: str, why: str) -> None:  # faults: S11
    mechanism = begun()
    with pytest.raises(AuthenticationError, match=why):
        mechanism.step(first.encode())
    with pytest.raises(AuthenticationError):  # and there is no second chance
        mechanism.step(f"r={SERVER_NONCE},s={SALT},i=4096".encode())


@pytest.mark.parametrize("iterations", [MIN_ITERATIONS, MAX_ITERATIONS])
def test_the_bounds_of_iterations_are_inclusive(iterations: int) -> None:  # faults: S11
    work = begun().step(f"r={SERVER_NONCE},s={SALT},i={iterations}".encode())
    assert isinstance(work, SaltedPassword)
    assert work.iterations == iterations


def test_optional_extensions_are_ignored_and_signed() -> None:
    work = begun().step(f"r={SERVER_NONCE},s={SALT},i=4096,x=later".encode())
    assert isinstance(work, HashWork)


@pytest.mark.parametrize(
    ("final", "why"),
    [
        ("v=7rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=", "wrong signature"),
        ("v=AAAA", "wrong signature"),
        ("v=not base64", "signature that is not base64"),
        ("v=", "attributes"),
        ("", "attributes"),
        ("x=1", "without its signature"),
        ("x=1,v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=", "without its signature"),
        ("v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=,v=AAAA", "twice"),
        ("e=invalid-proof", "invalid-proof"),
        (f"r={SERVER_NONCE},s={SALT},i=4096", "without its signature"),
    ],
)
def test_a_broker_that_cannot_prove_itself_is_refused(final: str, why: str) -> None:  # faults: S10
    mechanism = at_the_signature()
    with pytest.raises(AuthenticationError, match=why):
        mechanism.step(final.encode())
    with pytest.raises(AuthenticationError):
        mechanism.step(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")


def test_a_message_after_success_is_refused() -> None:
    mechanism = at_the_signature()
    mechanism.step(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")
    with pytest.raises(AuthenticationError, match="too many"):
        mechanism.step(b"")


def test_text_of_the_broker_is_escaped() -> None:  # faults: H14
    with pytest.raises(AuthenticationError) as raised:
        begun().step(b"e=\x1b[31mred\nnext line" + b"x" * 5000)
    assert "\x1b" not in str(raised.value)
    assert "\n" not in raised.value.message
    assert len(raised.value.message) < 400


def test_each_exchange_has_its_own_nonce() -> None:
    starts = {ScramSha256("user", Secret("pencil")).start() for _ in range(50)}
    assert len(starts) == 50


def test_nothing_of_a_secret_shows() -> None:  # faults: S18
    mechanism = ScramSha256("user", Secret("canary"), nonce=CLIENT_NONCE)
    work = mechanism.step(f"r={SERVER_NONCE},s={SALT},i=4096".encode())
    assert isinstance(work, HashWork)
    reply = mechanism.hashed(work.run())
    assert "canary" not in f"{mechanism!r} {work!r} {reply!r}"
    assert "p=" not in repr(reply)


@given(st.binary(max_size=300))
def test_any_bytes_are_refused_or_understood(challenge: bytes) -> None:  # faults: H23
    with pytest.raises(AuthenticationError):
        begun().step(challenge)


@given(st.lists(st.tuples(st.sampled_from("rsimevx"), st.text(max_size=20)), max_size=5))
def test_any_attributes_are_refused_or_understood(attributes: list[tuple[str, str]]) -> None:  # faults: H23
    challenge = ",".join(f"{key}={value}" for key, value in attributes).encode(errors="surrogatepass")
    for mechanism in (begun(), at_the_signature()):
        with pytest.raises(AuthenticationError):
            mechanism.step(challenge)


@pytest.mark.parametrize(
    ("username", "password", "option"), [("u", "canary\udcff", "sasl_password"), ("canary\ud800", "p", "sasl_username")]
)
def test_credentials_without_utf_8_are_named_and_not_shown(username: str, password: str, option: str) -> None:
    # faults: S18
    with pytest.raises(ConfigError, match=f"{option} cannot be encoded in UTF-8") as raised:
        ScramSha256(username, Secret(password))
    assert "canary" not in repr(raised.value)
    assert raised.value.__context__ is None


def test_what_a_broker_repeats_of_what_it_was_sent_is_not_shown() -> None:  # faults: S18
    mechanism = begun("canary-s3cret")
    work = mechanism.step(f"r={SERVER_NONCE},s={SALT},i=4096".encode())
    assert isinstance(work, SaltedPassword)
    reply = mechanism.hashed(work.run())
    assert isinstance(reply, Reply)
    proof = reply.token.decode().rpartition(",p=")[2]
    with pytest.raises(AuthenticationError) as raised:
        mechanism.step(f"e=canary-s3cret {proof} no".encode())
    assert "*** *** no" in str(raised.value)
