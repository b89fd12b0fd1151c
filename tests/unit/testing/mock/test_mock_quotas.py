"""The window over which a quota is computed, with a clock that the test moves."""

from __future__ import annotations

from aiokprod.testing.mock.quotas import ClientQuotas


def test_ten_seconds_worth_pass_then_a_second_for_each_second_too_much() -> None:  # broker: 14.1
    quotas = ClientQuotas({"c": 20_000.0})
    throttles = [quotas.charge("c", 20_000, 0.0) for _ in range(13)]
    assert throttles == [0] * 10 + [1000, 2000, 3000]


def test_one_big_request_is_throttled_for_all_of_its_excess() -> None:  # broker: 14.3
    assert ClientQuotas({"c": 20_000.0}).charge("c", 500_000, 5.0) == 15_000


def test_what_was_sent_is_forgotten_after_eleven_seconds() -> None:
    quotas = ClientQuotas({"c": 1000.0})
    assert quotas.charge("c", 10_000, 0.0) == 0
    assert quotas.charge("c", 1000, 0.5) == 500
    assert quotas.charge("c", 1000, 10.9) == 1100
    assert quotas.charge("c", 1000, 22.0) == 0


def test_other_clients_are_not_charged() -> None:
    quotas = ClientQuotas({"c": 1.0})
    assert quotas.charge("d", 10**9, 0.0) == quotas.charge(None, 10**9, 0.0) == 0
