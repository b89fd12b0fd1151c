"""SASL in the handshake; no failure of it shows a secret."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import hashlib
import struct
import threading
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from both_loops import Run, both_loops
from handshakes import CANARY, OTHER_CA, at, opened, refused, server_context, tls_settings
from scram_server import serve_scram
from scripted_broker import Peer, Script, ScriptedBroker, api_versions, eventually, idle

from aiokprod.cluster.dialing import authentication
from aiokprod.cluster.dialing.authentication import MAX_SESSION_LIFETIME_S
from aiokprod.cluster.dialing.connection_settings import THREADS, ConnectionSettings
from aiokprod.cluster.dialing.handshake import Endpoint, open_connection
from aiokprod.cluster.dialing.sasl.mechanism import Mechanism
from aiokprod.cluster.dialing.sasl.oauthbearer import OAuthBearer
from aiokprod.cluster.dialing.sasl.plain import Plain
from aiokprod.cluster.dialing.sasl.scram import ScramSha256, ScramSha512
from aiokprod.cluster.dialing.tokens import TokenSource
from aiokprod.config import OAuthToken, Secret
from aiokprod.errors import (
    AiokprodError,
    AuthenticationError,
    ConnectionLostError,
    ConnectionSetupTimeoutError,
    ProtocolError,
    TlsError,
    UnsupportedVersionError,
)
from aiokprod.wire.messages.sasl_authenticate import SaslAuthenticateResponse
from aiokprod.wire.messages.sasl_handshake import SaslHandshakeResponse


def sasl_settings(
    kind: Callable[[str, Secret], Mechanism] = ScramSha256, password: str = CANARY, **options: Any
) -> ConnectionSettings:
    return ConnectionSettings(new_mechanism=lambda: kind("user", Secret(password)), **options)


def bearer(user: str, password: Secret) -> OAuthBearer:
    """Make the mechanism whose only secret is a token."""
    return OAuthBearer(OAuthToken(password))


def scram_broker(password: str, **options: Any) -> Script:
    async def script(peer: Peer) -> None:
        await peer.negotiate()
        await peer.agree_on_sasl()
        if await serve_scram(peer, password, **options):
            await idle(peer)

    return script


@pytest.mark.parametrize(("kind", "hash_name"), [(ScramSha256, "sha256"), (ScramSha512, "sha512")])
@both_loops
def test_scram_authenticates_both_sides(run: Run, kind: type[ScramSha256], hash_name: str) -> None:
    async def scenario() -> None:
        async with (
            ScriptedBroker(scram_broker(CANARY, hash_name=hash_name)) as broker,
            opened(broker, sasl_settings(kind)) as connection,
        ):
            assert connection.session_lifetime_s == 60.0
            assert connection.expires_at is not None
            left_s = connection.expires_at - asyncio.get_running_loop().time()
            assert 30.0 < left_s < 60.0

    run(scenario())


def plain_broker(answer: SaslAuthenticateResponse, tokens: list[bytes] | None = None) -> Script:
    async def script(peer: Peer) -> None:
        await peer.negotiate()
        assert await peer.agree_on_sasl() == "PLAIN"
        token = await peer.sasl_token_only()
        if tokens is not None:
            tokens.append(token)
        peer.answer_sasl(answer)
        await idle(peer)

    return script


@both_loops
def test_plain_sends_its_token_once(run: Run) -> None:
    async def scenario() -> None:
        tokens: list[bytes] = []
        async with (
            ScriptedBroker(plain_broker(SaslAuthenticateResponse(), tokens)) as broker,
            opened(broker, sasl_settings(Plain)),
        ):
            assert tokens == [b"\0user\0" + CANARY.encode()]

    run(scenario())


@both_loops
def test_credentials_are_asked_for_on_each_dial(run: Run) -> None:  # faults: S17
    async def scenario() -> None:
        passwords = ["old", "new"]
        tokens: list[bytes] = []
        settings = ConnectionSettings(new_mechanism=lambda: Plain("user", Secret(passwords.pop(0))))
        async with ScriptedBroker(plain_broker(SaslAuthenticateResponse(), tokens)) as broker:
            for _ in range(2):
                async with opened(broker, settings):
                    pass
            assert tokens == [b"\0user\0old", b"\0user\0new"]

    run(scenario())


REFUSAL = b'{"status":"insufficient_scope","scope":"kafka","openid-configuration":"https://id.example"}'


def oauth_broker(*answers: SaslAuthenticateResponse, heard: list[bytes]) -> Script:
    async def script(peer: Peer) -> None:
        await peer.negotiate()
        assert await peer.agree_on_sasl() == "OAUTHBEARER"
        for answer in answers:
            heard.append(await peer.sasl_token_only())
            peer.answer_sasl(answer)
        await idle(peer)

    return script


@both_loops
def test_a_token_is_taken_for_each_dial_and_one_that_is_refused_is_not_taken_again(run: Run) -> None:
    # faults: S14, S17
    async def scenario() -> None:
        calls: list[str] = []

        async def provider() -> tuple[str, int]:
            calls.append(f"token-{len(calls) + 1}")
            return calls[-1], 4_000_000_000_000

        heard: list[bytes] = []
        good = oauth_broker(SaslAuthenticateResponse(session_lifetime_ms=9_000), heard=heard)
        refusing = oauth_broker(
            SaslAuthenticateResponse(auth_bytes=REFUSAL),
            SaslAuthenticateResponse(error_code=58, error_message=REFUSAL.decode()),
            heard=heard,
        )
        settings = ConnectionSettings(tokens=TokenSource(provider))
        async with ScriptedBroker(good, refusing, good) as broker:
            async with opened(broker, settings) as connection:
                assert connection.session_lifetime_s == 9.0
            error = await refused(broker, settings)
            assert isinstance(error, AuthenticationError)
            assert error.code == 58
            told = "the broker refused the token: insufficient_scope; wanted scope: kafka; see: https://id.example"
            assert told in str(error)
            async with opened(broker, settings):
                pass
        first, second = (b"n,,\x01auth=Bearer token-%d\x01\x01" % number for number in (1, 2))
        assert heard == [first, first, b"\x01", second]
        assert len(calls) == 2

    run(scenario())


@both_loops
def test_a_broker_that_accepts_after_its_refusal_is_refused(run: Run) -> None:  # faults: S14
    async def scenario() -> None:
        heard: list[bytes] = []
        script = oauth_broker(
            SaslAuthenticateResponse(auth_bytes=REFUSAL), SaslAuthenticateResponse(auth_bytes=b""), heard=heard
        )
        async with ScriptedBroker(script) as broker:
            error = await refused(broker, sasl_settings(bearer))
            assert isinstance(error, AuthenticationError)
            assert error.code == 58
        assert heard[1:] == [b"\x01"]

    run(scenario())


@both_loops
def test_a_provider_without_a_token_in_time_fails_the_dial_before_it_connects(run: Run) -> None:  # faults: S14
    async def scenario() -> None:
        let_go = asyncio.Event()

        async def provider() -> str:
            await let_go.wait()
            return "t"

        heard: list[bytes] = []
        async with ScriptedBroker(oauth_broker(SaslAuthenticateResponse(), heard=heard)) as broker:
            # Without a thread for the name: it may take longer than the time there is.
            settings = ConnectionSettings(tokens=TokenSource(provider), resolver=at(("127.0.0.1", broker.port)))
            error = await refused(broker, settings, timeout_s=0.01)
            assert isinstance(error, ConnectionSetupTimeoutError)
            assert "sasl_oauth_token_provider has not returned in time" in str(error)
            assert broker.connections == 0
            let_go.set()
            async with opened(broker, settings):
                pass

    run(scenario())


@both_loops
def test_a_provider_that_raises_fails_the_dial_and_shows_nothing(run: Run) -> None:  # faults: S14, S18
    async def scenario() -> None:
        def provider() -> str:
            raise Vault(CANARY)

        async with ScriptedBroker(idle) as broker:
            with pytest.raises(AuthenticationError, match="raised Vault") as raised:
                async with opened(broker, ConnectionSettings(tokens=TokenSource(provider))):
                    pass
            text = shown(raised.value)
            assert "handshake" in text
            assert CANARY not in text
            assert broker.connections == 0

    run(scenario())


@pytest.mark.parametrize(
    ("lifetime_ms", "lifetime_s"), [(0, None), (-5, None), (1, 0.001), (3000, 3.0), (2**63 - 1, MAX_SESSION_LIFETIME_S)]
)
@both_loops
def test_session_lifetimes_are_clamped(run: Run, lifetime_ms: int, lifetime_s: float | None) -> None:  # faults: S16
    async def scenario() -> None:
        answer = SaslAuthenticateResponse(session_lifetime_ms=lifetime_ms)
        async with (
            ScriptedBroker(plain_broker(answer)) as broker,
            opened(broker, sasl_settings(Plain)) as connection,
        ):
            assert connection.session_lifetime_s == lifetime_s
            assert (connection.expires_at is None) == (lifetime_s is None)

    run(scenario())


@pytest.mark.parametrize("kind", [Plain, ScramSha256])
@both_loops
def test_a_wrong_password_is_an_authentication_error_and_tries_no_other_address(
    run: Run, kind: Callable[[str, Secret], Mechanism]
) -> None:  # faults: S8
    async def plain_refusal(peer: Peer) -> None:
        await peer.negotiate()
        await peer.agree_on_sasl()
        await peer.sasl_token_only()
        peer.answer_sasl(SaslAuthenticateResponse(error_code=58, error_message="invalid credentials\x1b[0m"))

    async def scenario() -> None:
        script = scram_broker("another") if kind is ScramSha256 else plain_refusal
        async with ScriptedBroker(script) as broker:
            resolver = at(("127.0.0.1", broker.port), ("127.0.0.1", broker.port))
            error = await refused(broker, sasl_settings(kind, resolver=resolver), host="two.example")
            assert isinstance(error, AuthenticationError)
            assert error.code == 58
            assert "invalid credentials" in str(error)
            assert "\x1b" not in str(error)
            assert broker.connections == 1

    run(scenario())


@both_loops
def test_a_mechanism_that_is_off_names_those_that_are_offered(run: Run) -> None:  # faults: S9
    async def others(peer: Peer) -> None:
        await peer.negotiate()
        request = await peer.request()
        answer = SaslHandshakeResponse(error_code=33, mechanisms=["GSSAPI", "SCRAM-SHA-512\n"])
        peer.answer(request, answer.encode(request.version))

    async def scenario() -> None:
        async with ScriptedBroker(others) as broker:
            error = await refused(broker, sasl_settings())
            assert isinstance(error, AuthenticationError)
            assert "GSSAPI, SCRAM-SHA-512" in str(error)
            assert "\n" not in str(error)

    run(scenario())


@pytest.mark.parametrize(("code", "words"), [(34, "does not speak SASL"), (999, "UNKNOWN_CODE_999")])
@both_loops
def test_other_refusals_of_the_sasl_handshake_are_told(run: Run, code: int, words: str) -> None:
    async def refuse(peer: Peer) -> None:
        await peer.negotiate()
        request = await peer.request()
        peer.answer(request, SaslHandshakeResponse(error_code=code).encode(request.version))

    async def scenario() -> None:
        async with ScriptedBroker(refuse) as broker:
            error = await refused(broker, sasl_settings())
            assert isinstance(error, AuthenticationError)
            assert words in str(error)

    run(scenario())


@pytest.mark.parametrize(
    "final",
    [b"", b"v=", b"v=AAAA", b"e=other-error", b"x=1", b"\xff\xfe", b"v=AAAA,v=AAAA"],
)
@both_loops
def test_a_broker_that_does_not_know_the_password_is_refused(run: Run, final: bytes) -> None:  # faults: S10
    async def impostor(peer: Peer) -> None:
        await peer.negotiate()
        await peer.agree_on_sasl()
        first = (await peer.sasl_token_only()).decode()
        nonce = first.partition(",r=")[2]
        peer.answer_sasl(SaslAuthenticateResponse(auth_bytes=f"r={nonce}x,s=c2FsdA==,i=4096".encode()))
        await peer.sasl_token_only()
        peer.answer_sasl(SaslAuthenticateResponse(auth_bytes=final))
        assert await peer.hung_up()

    async def scenario() -> None:
        async with ScriptedBroker(impostor) as broker:
            assert isinstance(await refused(broker, sasl_settings()), AuthenticationError)

    run(scenario())


@both_loops
def test_a_broker_with_another_password_is_refused(run: Run) -> None:  # faults: S10
    async def scenario() -> None:
        async with ScriptedBroker(scram_broker("another", lies=True)) as broker:
            error = await refused(broker, sasl_settings())
            assert isinstance(error, AuthenticationError)
            assert "wrong signature" in str(error)

    run(scenario())


@both_loops
def test_absurd_iterations_are_refused_at_once(run: Run) -> None:  # faults: S12
    async def scenario() -> None:
        async def greedy(peer: Peer) -> None:
            await peer.negotiate()
            await peer.agree_on_sasl()
            nonce = (await peer.sasl_token_only()).decode().partition(",r=")[2]
            peer.answer_sasl(SaslAuthenticateResponse(auth_bytes=f"r={nonce}x,s=c2FsdA==,i=2147483647".encode()))
            assert await peer.hung_up()

        async with ScriptedBroker(greedy) as broker:
            error = await refused(broker, sasl_settings(), timeout_s=2.0)
            assert isinstance(error, AuthenticationError)
            assert "2147483647 iterations" in str(error)

    run(scenario())


@both_loops
def test_hashing_does_not_hold_the_loop(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:  # faults: S12
    hashes, may_end, hashed = threading.Event(), threading.Event(), hashlib.pbkdf2_hmac

    def slow(*arguments: Any) -> bytes:
        if threading.current_thread() is not threading.main_thread():  # the broker of the test hashes in its loop
            hashes.set()
            assert may_end.wait(60)
        return hashed(*arguments)

    async def scenario() -> None:
        async with ScriptedBroker(scram_broker(CANARY)) as broker:
            monkeypatch.setattr(hashlib, "pbkdf2_hmac", slow)
            endpoint = Endpoint(host="127.0.0.1", port=broker.port)
            dialling = asyncio.ensure_future(open_connection(endpoint, sasl_settings(), timeout_s=60))
            await eventually(hashes.is_set)  # the loop turns meanwhile
            dialling.cancel()
            with pytest.raises(asyncio.CancelledError):  # the thread hashes on; nothing waits for it
                await dialling
            assert not may_end.is_set()
            may_end.set()

    run(scenario())


@pytest.mark.parametrize("failure", [RuntimeError("can't start new thread"), OSError(24, CANARY), ValueError(CANARY)])
@both_loops
def test_a_machine_without_a_thread_for_the_hash_fails_the_dial(
    run: Run, failure: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:  # faults: N21, S18
    submitted = ThreadPoolExecutor.submit

    def submit(self: ThreadPoolExecutor, *work: Any, **options: Any) -> Any:
        if self._thread_name_prefix == "aiokprod-scram":
            raise failure
        return submitted(self, *work, **options)  # names are resolved by other threads

    async def scenario() -> None:
        async with ScriptedBroker(scram_broker(CANARY)) as broker:
            error = await refused(broker, sasl_settings(ScramSha256))
            assert isinstance(error, ConnectionLostError)
            assert type(failure).__name__ in str(error)
            assert CANARY not in shown(error)

    monkeypatch.setattr(ThreadPoolExecutor, "submit", submit)
    run(scenario())


@both_loops
def test_when_the_program_has_ended_the_hash_needs_no_thread(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        async with ScriptedBroker(scram_broker(CANARY)) as broker:
            settings = sasl_settings(ScramSha256)
            settings.threads.shutdown()
            connection = await open_connection(Endpoint(host="127.0.0.1", port=broker.port), settings)
            connection.close(ConnectionLostError("the test is over"))

    monkeypatch.setattr(authentication, "has_ended", lambda: True)
    run(scenario())


@both_loops
def test_many_dials_hash_in_few_threads(run: Run) -> None:
    """A thread for each dial, and another for each that was tried again, kept the loop waiting for seconds."""

    async def scenario() -> None:
        async with ScriptedBroker(scram_broker(CANARY)) as broker:
            settings = sasl_settings(ScramSha256)
            endpoint = Endpoint(host="127.0.0.1", port=broker.port)
            dials = [open_connection(endpoint, settings) for _ in range(20)]
            for connection in await asyncio.gather(*dials):
                connection.close(ConnectionLostError("the test is over"))
            assert 1 <= len(settings.threads._threads) <= THREADS

    run(scenario())


class Rotated(Secret):
    """A password that is another one each time, and in the end none that can be sent."""

    __slots__ = ("_reveals",)

    def __init__(self, good: int, then: str | Exception) -> None:
        super().__init__("good")
        self._reveals = [*("good" for _ in range(good)), *(then for _ in range(10))]

    def reveal(self) -> str:
        now = self._reveals.pop(0)
        if isinstance(now, Exception):
            raise now
        return now


class Vault(Exception):
    """An error of the user's own code."""


@pytest.mark.parametrize("good", range(5))
@pytest.mark.parametrize("then", [CANARY + "\udcff", Vault(CANARY)], ids=["surrogate", "error"])
@pytest.mark.parametrize("kind", [Plain, ScramSha256])
@both_loops
def test_a_password_that_cannot_be_had_fails_the_dial_and_shows_nowhere(
    run: Run, kind: type[Plain | ScramSha256], then: str | Exception, good: int, caplog: pytest.LogCaptureFixture
) -> None:  # faults: S17, S18
    async def unasked(peer: Peer) -> None:
        await peer.negotiate()
        await peer.agree_on_sasl()
        await peer.sasl_token_only()
        raise ConnectionResetError

    async def scenario() -> None:
        secret = Rotated(good, then)
        async with ScriptedBroker(unasked if kind is Plain else scram_broker("good")) as broker:
            settings = ConnectionSettings(new_mechanism=lambda: kind("user", secret))
            try:
                async with opened(broker, settings):
                    pass
            except AiokprodError as error:
                assert CANARY not in shown(error)

    caplog.set_level(0)
    run(scenario())
    assert CANARY not in caplog.text


@both_loops
def test_a_broker_that_hangs_up_during_sasl_may_be_tried_again(run: Run) -> None:
    async def restart(peer: Peer) -> None:
        await peer.negotiate()
        await peer.agree_on_sasl()
        await peer.request()

    async def restart_earlier(peer: Peer) -> None:
        await peer.negotiate()
        await peer.request()

    async def scenario() -> None:
        async with ScriptedBroker(restart, restart_earlier) as broker:
            for _ in range(2):
                error = await refused(broker, sasl_settings())
                assert isinstance(error, ConnectionLostError)
                assert error.retriable
                assert "hung up" in str(error)

    run(scenario())


@pytest.mark.parametrize("rounds", [0, 1])
@both_loops
def test_a_sasl_answer_that_cannot_be_read_is_a_protocol_error(run: Run, rounds: int) -> None:  # faults: H4, H22
    async def rubbish(peer: Peer) -> None:
        await peer.negotiate()
        if rounds:
            await peer.agree_on_sasl()
        peer.answer(await peer.request(), b"\x00\x00\x7f\xff\xff\xff")
        await idle(peer)

    async def scenario() -> None:
        async with ScriptedBroker(rubbish) as broker:
            assert isinstance(await refused(broker, sasl_settings()), ProtocolError)

    run(scenario())


@both_loops
def test_a_broker_without_sasl_requests_is_unsupported(run: Run) -> None:
    async def ancient(peer: Peer) -> None:
        request = await peer.request()
        answer = api_versions()
        answer.api_keys = [key for key in answer.api_keys if key.api_key not in (17, 36)]
        peer.answer(request, answer.encode(request.version))
        await idle(peer)

    async def scenario() -> None:
        async with ScriptedBroker(ancient) as broker:
            assert isinstance(await refused(broker, sasl_settings()), UnsupportedVersionError)

    run(scenario())


@both_loops
def test_an_endless_sasl_frame_is_refused_by_its_length(run: Run) -> None:  # faults: H21
    async def endless(peer: Peer) -> None:
        await peer.negotiate()
        await peer.agree_on_sasl()
        await peer.request()
        peer.send(struct.pack(">i", 100_000_000))
        with contextlib.suppress(ConnectionError):
            while True:
                peer.send(bytes(65536))
                await peer.writer.drain()

    async def scenario() -> None:
        async with ScriptedBroker(endless) as broker:
            assert isinstance(await refused(broker, sasl_settings()), ProtocolError)

    run(scenario())


@both_loops
def test_credentials_are_never_sent_to_a_broker_tls_does_not_trust(run: Run) -> None:  # faults: H17
    received: list[bytes] = []

    async def eavesdrop(peer: Peer) -> None:
        received.append(await peer.reader.read(10_000))

    async def scenario() -> None:
        async with ScriptedBroker(eavesdrop, tls=server_context()) as broker:
            settings = sasl_settings(Plain, ssl_context=tls_settings(OTHER_CA).ssl_context)
            assert isinstance(await refused(broker, settings), TlsError)
        assert received in ([], [b""])

    run(scenario())


def shown(error: BaseException | None) -> str:
    """Return everything that a traceback with locals would print of our own code."""
    text = ""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        text += f"{error!r} {error}"
        told = traceback.TracebackException.from_exception(error, capture_locals=True)
        for frame in told.stack:
            if "tests/unit" not in frame.filename:
                text += f"\n{frame.filename}:{frame.name} {frame.locals}"
        error = error.__cause__ or error.__context__
    return text


async def refuse_token(peer: Peer) -> None:
    await peer.negotiate()
    await peer.agree_on_sasl()
    await peer.sasl_token_only()
    peer.answer_sasl(SaslAuthenticateResponse(error_code=58, error_message="no"))


async def hang_up_on_token(peer: Peer) -> None:
    await peer.negotiate()
    await peer.agree_on_sasl()
    await peer.sasl_token_only()


async def reset_on_token(peer: Peer) -> None:
    await hang_up_on_token(peer)
    peer.reset()


async def silent_on_token(peer: Peer) -> None:
    await hang_up_on_token(peer)
    await idle(peer)


async def rubbish_on_token(peer: Peer) -> None:
    await hang_up_on_token(peer)
    peer.send(b"\xff" * 100)
    await idle(peer)


async def second_round(peer: Peer) -> None:
    await peer.negotiate()
    await peer.agree_on_sasl()
    await peer.sasl_token_only()
    peer.answer_sasl(SaslAuthenticateResponse(auth_bytes=f"more {CANARY}".encode()))
    await idle(peer)


async def refuse_with_echo(peer: Peer) -> None:
    await peer.negotiate()
    await peer.agree_on_sasl()
    await peer.sasl_token_only()
    peer.answer_sasl(SaslAuthenticateResponse(error_code=58, error_message=f"no user has {CANARY} here"))


async def echo_that_is_no_text(peer: Peer) -> None:
    await hang_up_on_token(peer)
    text = CANARY.encode() + b"\xff"
    peer.answer_sasl_bytes((58).to_bytes(2, "big") + bytes([len(text) + 1]) + text + b"\x01" + bytes(8) + b"\0")
    await idle(peer)


async def echo_behind_an_answer(peer: Peer) -> None:
    await hang_up_on_token(peer)
    peer.answer_sasl_bytes(SaslAuthenticateResponse(error_code=58).encode(2) + CANARY.encode())
    await idle(peer)


async def offer_no_text(peer: Peer) -> None:
    await peer.negotiate()
    request = await peer.request()
    name = CANARY.encode() + b"\xff"
    peer.answer(request, (33).to_bytes(2, "big") + (1).to_bytes(4, "big") + len(name).to_bytes(2, "big") + name)


async def offer_an_echo(peer: Peer) -> None:
    await peer.negotiate()
    request = await peer.request()
    answer = SaslHandshakeResponse(error_code=33, mechanisms=["GSSAPI", CANARY])
    peer.answer(request, answer.encode(request.version))


def handshake_answer(body: Callable[[int], bytes]) -> Script:
    async def script(peer: Peer) -> None:
        await peer.negotiate()
        request = await peer.request()
        peer.answer(request, body(request.version))
        await idle(peer)

    return script


def token_answer(body: Callable[[int, bytes], bytes]) -> Script:
    async def script(peer: Peer) -> None:
        await peer.negotiate()
        await peer.agree_on_sasl()
        token, request = await peer.sasl_token()
        peer.answer(request, body(request.version, token))
        await idle(peer)

    return script


def repeated(version: int, code: int = 58, challenge: bytes = CANARY.encode()) -> bytes:
    return SaslAuthenticateResponse(error_code=code, error_message=CANARY, auth_bytes=challenge).encode(version)


def first_of_scram(token: bytes) -> bytes:
    return b"r=%bx,s=c2FsdA==,i=4096" % token.partition(b",r=")[2]


ECHOES = {
    "names that are not UTF-8": handshake_answer(
        lambda _: b"\0\x21\0\0\0\1" + (len(CANARY) + 1).to_bytes(2, "big") + CANARY.encode() + b"\xff"
    ),
    "names and more": handshake_answer(
        lambda version: SaslHandshakeResponse(mechanisms=[CANARY]).encode(version) + CANARY.encode()
    ),
    "names and another code": handshake_answer(
        lambda version: SaslHandshakeResponse(error_code=999, mechanisms=[CANARY]).encode(version)
    ),
    "names and no SASL": handshake_answer(
        lambda version: SaslHandshakeResponse(error_code=34, mechanisms=[CANARY]).encode(version)
    ),
    "a text that is not UTF-8": token_answer(
        lambda *_: b"\0\x3a" + bytes([len(CANARY) + 2]) + CANARY.encode() + b"\xff\x01" + bytes(9)
    ),
    "bytes behind the answer": token_answer(lambda version, _: repeated(version) + CANARY.encode()),
    "tags that are broken": token_answer(lambda version, _: repeated(version)[:-1] + b"\xff\xff\x03"),
    "an answer that is cut": token_answer(lambda version, _: repeated(version)[:-1]),
    "a text beside a second round": token_answer(lambda version, _: repeated(version, 0)),
    "a text beside a challenge": token_answer(lambda version, token: repeated(version, 0, first_of_scram(token))),
    "a nonce": token_answer(lambda version, _: repeated(version, 0, f"r={CANARY},s=c2FsdA==,i=4096".encode())),
    "a salt": token_answer(
        lambda version, token: repeated(version, 0, first_of_scram(token).replace(b"c2FsdA", CANARY.encode()))
    ),
    "an attribute": token_answer(lambda version, _: repeated(version, 0, f"v=AAAA,x={CANARY}".encode())),
    "a refusal in JSON": token_answer(
        lambda version, _: repeated(version, 0, f'{{"status":"no {CANARY}","scope":"{CANARY}"}}'.encode())
    ),
    "JSON that is no refusal": token_answer(lambda version, _: repeated(version, 0, f'{{"{CANARY}":1}}'.encode())),
    "a challenge that is not UTF-8": token_answer(lambda version, _: repeated(version, 0, CANARY.encode() + b"\xff")),
}


@pytest.mark.parametrize("kind", [Plain, ScramSha256, bearer])
@pytest.mark.parametrize("script", ECHOES.values(), ids=ECHOES)
@both_loops
def test_no_answer_that_repeats_a_secret_is_kept_by_the_error(
    run: Run, kind: Callable[[str, Secret], Mechanism], script: Script, caplog: pytest.LogCaptureFixture
) -> None:  # faults: S18
    """A password showed in the locals of the decoder, or in the bytes of a UnicodeDecodeError."""
    caplog.set_level("DEBUG")

    async def scenario() -> None:
        async with ScriptedBroker(script) as broker:
            error = await refused(broker, sasl_settings(kind), timeout_s=2.0)
            assert isinstance(error, AuthenticationError | ProtocolError | ConnectionSetupTimeoutError)
            text = shown(error) + caplog.text
            assert "handshake" in text
            assert CANARY not in text
        gc.collect()

    run(scenario())


@pytest.mark.parametrize("kind", [Plain, ScramSha256, bearer])
@pytest.mark.parametrize(
    "script",
    [
        refuse_token,
        hang_up_on_token,
        reset_on_token,
        silent_on_token,
        rubbish_on_token,
        second_round,
        refuse_with_echo,
        echo_that_is_no_text,
        echo_behind_an_answer,
        offer_an_echo,
        offer_no_text,
    ],
)
@both_loops
def test_no_failure_shows_a_secret(
    run: Run, kind: Callable[[str, Secret], Mechanism], script: Script, caplog: pytest.LogCaptureFixture
) -> None:  # faults: S18
    caplog.set_level("DEBUG")

    async def scenario() -> None:
        async with ScriptedBroker(script) as broker:
            error = await refused(broker, sasl_settings(kind), timeout_s=0.3)
            text = shown(error) + caplog.text
            assert "handshake" in text  # the net is not empty
            assert CANARY not in text
        gc.collect()

    run(scenario())


def test_nothing_of_a_connection_shows_a_secret() -> None:  # faults: S18
    settings = sasl_settings(Plain)
    assert CANARY not in repr(settings)
