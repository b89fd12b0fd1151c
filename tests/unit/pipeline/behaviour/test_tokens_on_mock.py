"""The whole producer with SASL OAUTHBEARER, on the in-process cluster, in virtual time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest
from rig import mock_cluster, producer_of, run_in_virtual_time, values

from aiokprod import OAuthToken
from aiokprod.errors import AuthenticationError, BootstrapError, ConnectionSetupTimeoutError
from aiokprod.testing import MockCluster

OAUTH: dict[str, Any] = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "OAUTHBEARER"}
QUICK: dict[str, Any] = {"reconnect_backoff_ms": 5, "reconnect_backoff_max_ms": 20, "retry_backoff_ms": 5}


class Identities:
    """An identity provider: gives tokens that expire, and lets brokers know those that are good."""

    def __init__(self, lifetime_s: float) -> None:
        self.users: dict[str, str] = {}
        self.lifetime_s = lifetime_s
        self.takes_s = 0.01
        self.calls = 0
        self.broken = False

    async def __call__(self) -> OAuthToken:
        self.calls += 1
        await asyncio.sleep(self.takes_s)
        if self.broken:
            raise ConnectionError("the identity provider is down")
        token = f"t{self.calls}"
        self.users[token] = token
        asyncio.get_running_loop().call_later(self.lifetime_s, self.users.pop, token, None)
        return OAuthToken(token, (time.time() + self.lifetime_s) * 1000)


@asynccontextmanager
async def guarded(identities: Identities, **options: Any) -> AsyncIterator[MockCluster]:
    async with mock_cluster(sasl_mechanisms=["OAUTHBEARER"], **options) as cluster:
        identities.users = cast("dict[str, str]", cluster.broker(1).users)  # of all brokers, and changed from outside
        yield cluster


def test_one_call_of_the_provider_serves_all_brokers() -> None:  # faults: S14
    async def scenario() -> None:
        identities = Identities(lifetime_s=3_600.0)
        async with guarded(identities, brokers=3) as cluster:
            cluster.create_topic("t", partitions=6)
            async with producer_of(cluster, sasl_oauth_token_provider=identities, **OAUTH) as producer:
                await asyncio.gather(*(producer.send("t", b"v", partition=index) for index in range(6)))
                assert producer.metrics()["connections_opened"] > 3
            assert identities.calls == 1

    run_in_virtual_time(scenario())


def test_sessions_end_with_their_tokens_and_no_record_is_lost_doubled_or_out_of_order() -> None:  # faults: S15
    async def scenario() -> None:
        identities = Identities(lifetime_s=20.0)
        async with guarded(identities, brokers=1, session_lifetime_ms=3_000) as cluster:
            cluster.create_topic("t")
            async with producer_of(cluster, sasl_oauth_token_provider=identities, linger_ms=0, **OAUTH) as producer:
                deliveries = []
                for number in range(1_200):
                    deliveries.append(producer.send("t", b"%d" % number))
                    await asyncio.sleep(0.05)
                await producer.flush()
                assert all(delivery.done() and delivery.exception() is None for delivery in deliveries)
                opened = producer.metrics()["connections_opened"]
            assert values(cluster, "t") == [b"%d" % number for number in range(1_200)]
            assert opened > 15, "sessions ended"
            assert 3 < identities.calls < 8, "tokens outlive sessions, and are renewed before they expire"

    run_in_virtual_time(scenario())


def test_a_provider_that_raises_ends_a_start_and_not_a_running_producer() -> None:  # faults: S14
    async def scenario() -> None:
        identities = Identities(lifetime_s=3_600.0)
        identities.broken = True
        async with guarded(identities, brokers=1) as cluster:
            cluster.create_topic("t")
            producer = producer_of(cluster, sasl_oauth_token_provider=lambda: identities(), **OAUTH, **QUICK)
            began = asyncio.get_running_loop().time()
            with pytest.raises(
                AuthenticationError, match=r"sasl_oauth_token_provider raised ConnectionError \(test_tokens_on_mock"
            ):
                await producer.start(30.0)
            assert asyncio.get_running_loop().time() - began < 1.0
            identities.broken = False
            async with producer:
                await producer.send("t", b"0")
                identities.users.clear()  # all tokens are revoked
                identities.broken = True
                cluster.close_connections()
                delivery = producer.send("t", b"1")
                await asyncio.sleep(10.0)
                assert not delivery.done()
                assert "raised ConnectionError" in (producer.health().last_error or "")
                calls = identities.calls
                assert calls < 15, "at most one each second"
                identities.broken = False
                assert (await delivery).offset == 1

    run_in_virtual_time(scenario())


def test_a_slow_provider_delays_a_start_and_holds_up_no_open_connection() -> None:  # faults: S14
    async def scenario() -> None:
        identities = Identities(lifetime_s=100.0)
        identities.takes_s = 30.0
        async with guarded(identities, brokers=3, session_lifetime_ms=15_000) as cluster:
            cluster.create_topic("t", partitions=3)
            producer = producer_of(cluster, sasl_oauth_token_provider=identities, **OAUTH, **QUICK)
            with pytest.raises(BootstrapError) as late:
                await producer.start(15.0)
            ((_, _, cause),) = [
                tried for tried in late.value.tried if isinstance(tried[2], ConnectionSetupTimeoutError)
            ][:1]
            assert "sasl_oauth_token_provider has not returned in time" in str(cause)
            await producer.start(60.0)
            loop = asyncio.get_running_loop()
            try:
                await asyncio.gather(*(producer.send("t", b"v", partition=index) for index in range(3)))
                calls = identities.calls
                identities.takes_s = 10.0
                longest = 0.0
                for number in range(600):  # a minute longer than the token lives
                    began = loop.time()
                    await producer.send("t", b"v", partition=number % 3)
                    longest = max(longest, loop.time() - began)
                    await asyncio.sleep(0.25)
                assert identities.calls > calls, "tokens were renewed"
                assert producer.metrics()["connections_opened"] > 20, "connections were replaced all the time"
                assert longest < 1.0, "no record waited for the provider"
            finally:
                await producer.close()

    run_in_virtual_time(scenario())


def test_a_token_that_the_broker_refuses_is_told_by_its_status() -> None:
    async def scenario() -> None:
        async with mock_cluster(brokers=1, sasl_mechanisms=["OAUTHBEARER"], users={"alice": "right"}) as cluster:
            producer = producer_of(cluster, sasl_oauth_token_provider=lambda: ("canary", 4_000_000_000_000), **OAUTH)
            with pytest.raises(AuthenticationError, match="the broker refused the token: invalid_token") as raised:
                await producer.start(30.0)
            assert raised.value.code == 58
            assert "canary" not in str(raised.value)

    run_in_virtual_time(scenario())


def too_many_connects(answer: Any, version: int) -> Any:
    answer.error_code, answer.error_message, answer.auth_bytes = 58, "[9f]: Too many connects", b""
    return answer


@pytest.mark.parametrize("refused", [1, 2, 7])
def test_a_start_outlives_servers_that_refuse_logins_for_a_while(refused: int) -> None:  # faults: S8
    """One refusal of one of three servers ended the start at once."""

    async def scenario() -> None:
        async with guarded(identities := Identities(lifetime_s=3_600.0), brokers=3) as cluster:
            cluster.create_topic("t")
            rule = cluster.rewrite_answer("SaslAuthenticate", too_many_connects, times=refused)
            async with producer_of(cluster, sasl_oauth_token_provider=identities, **OAUTH) as producer:
                assert (await producer.send("t", b"v")).offset == 0
            assert rule.hits == refused

    run_in_virtual_time(scenario())


def test_a_start_that_all_servers_refuse_ends_before_its_time() -> None:
    async def scenario() -> None:
        async with mock_cluster(brokers=3, sasl_mechanisms=["OAUTHBEARER"], users={"alice": "right"}) as cluster:
            producer = producer_of(cluster, sasl_oauth_token_provider=lambda: ("wrong", 4_000_000_000_000), **OAUTH)
            began = asyncio.get_running_loop().time()
            with pytest.raises(AuthenticationError, match="the broker refused the token"):
                await producer.start(600.0)
            assert 10.0 <= asyncio.get_running_loop().time() - began < 30.0

    run_in_virtual_time(scenario())


def test_a_revoked_token_is_replaced_at_the_next_connection() -> None:  # faults: S17
    async def scenario() -> None:
        identities = Identities(lifetime_s=3_600.0)
        async with guarded(identities, brokers=1) as cluster:
            cluster.create_topic("t")
            async with producer_of(cluster, sasl_oauth_token_provider=identities, **OAUTH, **QUICK) as producer:
                await producer.send("t", b"0")
                identities.users.clear()
                cluster.close_connections()
                assert (await producer.send("t", b"1")).offset == 1
            assert identities.calls == 2

    run_in_virtual_time(scenario())
