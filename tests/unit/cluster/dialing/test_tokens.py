"""The tokens of a client: one call of the provider at a time, kept until shortly before they expire."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Awaitable, Callable, Coroutine
from random import Random
from typing import Any

import pytest
from aiokafka.abc import AbstractTokenProvider

from aiokprod.cluster.connection.lease import RENEWAL_EARLIEST
from aiokprod.cluster.dialing.tokens import REFRESH_SHARE, REST_S, RETRY_S, TokenSource
from aiokprod.cluster.owned_tasks import OwnedTasks
from aiokprod.config import OAuthToken, Secret
from aiokprod.errors import AuthenticationError, ConfigError
from aiokprod.testing.virtual import VirtualNetwork, run_virtual

CANARY = "canary-t0ken"
BEGAN_MS = 1_800_000_000_000.0
HOUR_S = 3600.0


class Provider:
    """A provider whose answers a test gives; each answer may be an exception, or take some time."""

    def __init__(self, *answers: Any, takes_s: float = 0.0) -> None:
        self.answers = list(answers)
        self.takes_s = takes_s
        self.calls: list[float] = []
        self.at_work = 0
        self.most_at_work = 0

    async def __call__(self) -> Any:
        self.calls.append(asyncio.get_running_loop().time())
        self.at_work += 1
        self.most_at_work = max(self.most_at_work, self.at_work)
        try:
            await asyncio.sleep(self.takes_s)
        finally:
            self.at_work -= 1
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if callable(answer):
            answer = answer()
        if isinstance(answer, BaseException):
            raise answer
        return answer


class World:
    """A source with an owner of its tasks, in virtual time."""

    def __init__(self, provider: Any) -> None:
        self.crashes: list[BaseException] = []
        self.tasks = OwnedTasks(self.crashes.append)
        self.loop = asyncio.get_running_loop()
        self.began = self.loop.time()
        self.slept_s = 0.0  # of a machine that sleeps: the wall clock goes on, the loop's stands still
        self.source = TokenSource(provider, now_ms=self.now_ms).owned(self.tasks.spawn)

    def now_ms(self) -> float:
        return BEGAN_MS + (self.loop.time() - self.began + self.slept_s) * 1000

    def expiring(self, after_s: float, text: str = "t") -> OAuthToken:
        return OAuthToken(text, self.now_ms() + after_s * 1000)

    async def close(self) -> None:
        self.source.close()
        await self.tasks.close()
        assert not self.crashes


def play(scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
    async def whole(network: VirtualNetwork, random: Random) -> None:
        await scenario()

    run_virtual(whole, seed=1, shuffled=False)


async def refused(taking: Awaitable[OAuthToken]) -> str:
    with pytest.raises(AuthenticationError) as raised:
        await taking
    error: BaseException = raised.value
    assert error.__cause__ is None and error.__context__ is None
    shown = traceback.TracebackException.from_exception(error, capture_locals=True)
    ours = "".join(str(frame.locals) for frame in shown.stack if "tests/unit" not in frame.filename)
    assert ours and CANARY not in f"{error!r}{ours}"
    return str(error)


# ---------------------------------------------------------------------- one call


def test_dials_at_the_same_time_share_one_call() -> None:
    async def scenario() -> None:
        provider = Provider("t", takes_s=1.0)
        world = World(provider)
        taken = await asyncio.gather(*(world.source.take() for _ in range(50)))
        assert {token.token.reveal() for token in taken} == {"t"}
        assert len(provider.calls) == 1
        await world.close()

    play(scenario)


def test_a_token_without_an_expiry_serves_those_that_wait_and_no_later_dial() -> None:
    async def scenario() -> None:
        provider = Provider("one", "two")
        world = World(provider)
        assert [(await world.source.take()).token.reveal() for _ in range(2)] == ["one", "two"]
        await world.close()

    play(scenario)


def test_a_slow_call_outlives_the_dials_that_waited_for_it() -> None:  # faults: S14
    async def scenario() -> None:
        provider = Provider("t", takes_s=30.0)
        world = World(provider)
        for _ in range(2):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(10.0):
                    await world.source.take()
        assert (await world.source.take()).token.reveal() == "t"
        assert len(provider.calls) == 1
        assert world.loop.time() - world.began == pytest.approx(30.0)
        await world.close()

    play(scenario)


@pytest.mark.parametrize(
    "provider",
    [
        lambda: ("t", 1_900_000_000_000),
        lambda: asyncio.sleep(1.0, "t"),
        lambda: OAuthToken("t"),
        lambda: Secret("t"),
    ],
    ids=["pair", "awaitable", "token", "secret"],
)
def test_a_plain_function_is_called_too(provider: Callable[[], Any]) -> None:
    async def scenario() -> None:
        world = World(provider)
        assert (await world.source.take()).token.reveal() == "t"
        await world.close()

    play(scenario)


class OfKafkaPython:
    def token(self) -> str:
        return "t"

    def extensions(self) -> dict[str, str]:
        return {"logicalCluster": "lkc-1"}


class OfAiokafka(AbstractTokenProvider):
    async def token(self) -> str:
        await asyncio.sleep(0.1)
        return "t"

    def extensions(self) -> dict[str, str]:
        return {"logicalCluster": "lkc-1"}


@pytest.mark.parametrize("kind", [OfKafkaPython, OfAiokafka])
def test_providers_of_other_clients_are_asked_for_their_extensions_too(kind: type[OfKafkaPython | OfAiokafka]) -> None:
    async def scenario() -> None:
        world = World(kind())
        token = await world.source.take()
        assert (token.token.reveal(), dict(token.extensions)) == ("t", {"logicalCluster": "lkc-1"})
        await world.close()

    play(scenario)


# ---------------------------------------------------------------------- what goes wrong


class Vault(Exception):
    """An error of the user's own code."""


def raising(error: BaseException) -> Callable[[], Any]:
    def fetch() -> Any:
        raise error

    return fetch


def raising_async(error: BaseException) -> Callable[[], Any]:
    async def fetch() -> Any:
        raise error

    return fetch


@pytest.mark.parametrize("make", [raising, raising_async])
@pytest.mark.parametrize(
    ("error", "says"),
    [
        (Vault(CANARY), "raised Vault (test_tokens.py, line "),
        (OSError(111, CANARY), "in fetch)"),
        (TimeoutError(CANARY), "raised TimeoutError"),
        (asyncio.CancelledError(CANARY), "raised CancelledError"),
        (StopIteration(CANARY), "raised "),
        (ConfigError("own words"), "failed: own words"),
        (AuthenticationError("the account is\nlocked"), r"failed: the account is\nlocked"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else "",
)
def test_an_error_of_a_provider_is_told_by_its_type_and_place(
    make: Callable[[BaseException], Any], error: BaseException, says: str, caplog: pytest.LogCaptureFixture
) -> None:  # faults: S14, S18
    caplog.set_level(0)

    async def scenario() -> None:
        world = World(make(error))
        assert says in await refused(world.source.take())
        await world.close()

    play(scenario)
    assert CANARY not in caplog.text


def test_an_exit_in_a_thread_is_an_error_of_the_provider() -> None:  # faults: S14
    async def scenario() -> None:
        world = World(raising(SystemExit(CANARY)))
        assert "raised SystemExit" in await refused(world.source.take())
        await world.close()

    play(scenario)


class BadExtensions(OfKafkaPython):
    def token(self) -> str:
        return CANARY

    def extensions(self) -> Any:
        raise Vault(CANARY)


class Unreadable(dict[str, str]):
    def items(self) -> Any:
        raise Vault(CANARY)


@pytest.mark.parametrize(
    ("provider", "says"),
    [
        (lambda: OAuthToken("t", None, Unreadable()), "raised Vault"),
        (lambda: None, "returned a NoneType"),
        (lambda: f"{CANARY}\r\nX-Header: 1", "no bearer token has"),
        (lambda: f"{CANARY}\x01host=evil\x01", "no bearer token has"),
        (lambda: (CANARY, BEGAN_MS - 90_000), "expired 90 s ago"),
        (lambda: OAuthToken(CANARY, BEGAN_MS - 90_000), "expired 90 s ago"),
        (lambda: (CANARY, BEGAN_MS / 1000), "seconds"),
        (lambda: OAuthToken(f"{CANARY}\n"), "failed: an OAuth token has a space or a line end"),
        (BadExtensions(), "raised Vault"),
        (int, "returned a int"),
    ],
)
def test_an_answer_that_cannot_be_used_is_an_authentication_error(provider: Any, says: str) -> None:
    # faults: S14, S18
    async def scenario() -> None:
        world = World(provider)
        assert says in await refused(world.source.take())
        await world.close()

    play(scenario)


def test_after_a_failure_or_a_refusal_the_provider_has_a_rest() -> None:  # faults: S8, S14
    async def scenario() -> None:
        provider = Provider(Vault(), Vault(), "t")
        world = World(provider)
        for _ in range(2):
            await refused(world.source.take())
        token = await world.source.take()
        world.source.refused(token)
        await world.source.take()
        assert [later - earlier for earlier, later in zip(provider.calls, provider.calls[1:], strict=False)] == (
            pytest.approx([REST_S] * 3)
        )
        await world.close()

    play(scenario)


# ---------------------------------------------------------------------- keeping tokens


def test_a_token_is_kept_for_most_of_its_time_and_renewed_in_the_background() -> None:  # faults: S15
    async def scenario() -> None:
        provider = Provider(lambda: world.expiring(HOUR_S, f"t{len(provider.calls)}"), takes_s=30.0)
        world = World(provider)
        assert (await world.source.take()).token.reveal() == "t1"
        await asyncio.sleep(REFRESH_SHARE * HOUR_S - 1.0)
        assert len(provider.calls) == 1
        await asyncio.sleep(2.0)
        assert len(provider.calls) == 2, "no dial was needed for it"
        before = world.loop.time()
        assert (await world.source.take()).token.reveal() == "t1", "a dial does not wait while the last token is good"
        assert world.loop.time() == before
        await asyncio.sleep(30.0)
        assert (await world.source.take()).token.reveal() == "t2"
        await asyncio.sleep(5 * HOUR_S)
        assert provider.most_at_work == 1
        assert len(provider.calls) == pytest.approx(8, abs=1)
        await world.close()

    play(scenario)


def test_a_new_token_is_there_before_a_connection_is_replaced_because_the_old_one_expires() -> None:  # faults: S15
    assert REFRESH_SHARE < RENEWAL_EARLIEST


def test_a_refresh_that_fails_is_told_and_tried_again_while_the_last_token_is_used(
    caplog: pytest.LogCaptureFixture,
) -> None:  # faults: S14
    async def scenario() -> None:
        provider = Provider(
            lambda: world.expiring(HOUR_S, "one"),
            Vault(CANARY),
            Vault(CANARY),
            lambda: world.expiring(HOUR_S, "two"),
        )
        world = World(provider)
        await world.source.take()
        await asyncio.sleep(REFRESH_SHARE * HOUR_S + 1.0)
        assert len(provider.calls) == 2
        assert (await world.source.take()).token.reveal() == "one"
        await asyncio.sleep(2 * RETRY_S)
        assert (await world.source.take()).token.reveal() == "two"
        assert [provider.calls[at + 1] - provider.calls[at] for at in (1, 2)] == pytest.approx([RETRY_S] * 2)
        await world.close()

    play(scenario)
    assert "raised Vault" in caplog.text and "the last token is used for 720 s more" in caplog.text
    assert CANARY not in caplog.text


def test_a_token_that_expired_is_not_used_whatever_the_provider_does() -> None:  # faults: S14
    async def scenario() -> None:
        provider = Provider(lambda: world.expiring(100.0), Vault())
        world = World(provider)
        await world.source.take()
        await asyncio.sleep(99.0)
        await world.source.take()
        await asyncio.sleep(1.5)
        assert "raised Vault" in await refused(world.source.take())
        await world.close()

    play(scenario)


def test_a_provider_that_returns_the_same_token_to_its_end_is_not_called_without_a_pause() -> None:  # faults: S14
    async def scenario() -> None:
        token = OAuthToken("t", BEGAN_MS + HOUR_S * 1000)
        provider = Provider(token)
        world = World(provider)
        await world.source.take()
        await asyncio.sleep(HOUR_S - 0.01)
        assert len(provider.calls) < 8
        assert all(b - a >= REST_S for a, b in zip(provider.calls, provider.calls[1:], strict=False))
        await world.close()

    play(scenario)


def test_a_machine_that_slept_asks_for_a_token_as_soon_as_one_is_needed() -> None:
    async def scenario() -> None:
        provider = Provider(lambda: world.expiring(HOUR_S, f"t{len(provider.calls)}"))
        world = World(provider)
        await world.source.take()
        world.slept_s = 2 * HOUR_S
        assert (await world.source.take()).token.reveal() == "t2"
        await world.close()

    play(scenario)


def test_a_refused_token_is_not_used_again_and_no_other_is_forgotten() -> None:  # faults: S17
    async def scenario() -> None:
        provider = Provider(lambda: world.expiring(HOUR_S, f"t{len(provider.calls)}"))
        world = World(provider)
        first = await world.source.take()
        world.source.refused(first)
        second = await world.source.take()
        assert second.token.reveal() == "t2"
        world.source.refused(first)  # by a broker that answered late
        assert await world.source.take() is second
        await world.close()

    play(scenario)


def test_a_client_that_closes_ends_the_call_and_the_refresh() -> None:
    async def scenario() -> None:
        provider = Provider(lambda: world.expiring(100.0))
        world = World(provider)
        await world.source.take()
        await world.close()
        await asyncio.sleep(HOUR_S)
        assert len(provider.calls) == 1

        slow = Provider("t", takes_s=HOUR_S)
        other = World(slow)
        waiting = asyncio.ensure_future(other.source.take())
        await asyncio.sleep(1.0)
        await other.close()
        assert slow.at_work == 0, "it was cancelled"
        assert "client is closed" in await refused(waiting)

    play(scenario)


def test_a_client_that_closes_before_the_call_has_begun_fails_what_waits_for_it() -> None:
    async def scenario() -> None:
        provider = Provider("t")
        world = World(provider)
        waiting = asyncio.ensure_future(world.source.take())
        await asyncio.sleep(0)  # the call's task is made and has not run
        await world.close()
        assert "client is closed" in await refused(waiting)
        assert provider.calls == []

    play(scenario)


def test_a_source_without_an_owner_calls_nothing_in_the_background() -> None:
    async def scenario() -> None:
        provider = Provider(OAuthToken("t", BEGAN_MS + 100_000))
        source = TokenSource(provider, now_ms=lambda: BEGAN_MS)
        for _ in range(2):
            assert (await source.take()).token.reveal() == "t"
        await asyncio.sleep(HOUR_S)
        assert len(provider.calls) == 1

    play(scenario)


def test_a_source_shows_nothing() -> None:  # faults: S18
    class Shown:
        def __call__(self) -> tuple[str, float]:
            return CANARY, 4_000_000_000_000.0

        def __repr__(self) -> str:
            return CANARY

    async def scenario() -> None:
        source = TokenSource(Shown())
        assert repr(source) == "<TokenSource without a token>"
        await source.take()
        assert repr(source) == "<TokenSource with a token>"

    play(scenario)
