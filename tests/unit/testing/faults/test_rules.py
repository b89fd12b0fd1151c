"""The rules in force: which one acts, on what, and how often. Pure."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiokprod.errors import DeliveryTimeoutError
from aiokprod.testing.faults import Delay, Drop, Fail, Fault, FaultRules, Hold, Omit, Refuse, Rule, Run
from aiokprod.testing.faults.apis import api_key_of, api_name_of
from aiokprod.testing.faults.effects import code_of

PRODUCE, METADATA = 0, 3


def rules(*some: Fault) -> FaultRules:
    made = FaultRules()
    for fault in some:
        made.add(Rule(fault))
    return made


def test_a_rule_acts_as_often_as_it_says_and_then_is_gone() -> None:
    fail = Fail(7)
    made = rules(Fault(effect=fail, api="Produce", times=2))
    assert [made.for_item(PRODUCE, 1, "t", 0) for _ in range(3)] == [fail, fail, None]
    assert not made


def test_rules_act_in_the_order_they_were_added_one_at_a_time() -> None:
    first, second = Fail(1), Fail(2)
    made = rules(Fault(effect=first, api=PRODUCE), Fault(effect=second, api=PRODUCE))
    assert [made.for_item(PRODUCE, 1, "t", 0) for _ in range(3)] == [first, second, None]


@given(nth=st.integers(1, 6), times=st.none() | st.integers(1, 6), matches=st.integers(0, 15))
def test_a_rule_acts_from_the_nth_match_on_so_many_times(nth: int, times: int | None, matches: int) -> None:
    fault = Fault(effect=Drop(), api="Produce", nth=nth, times=times)
    rule = Rule(fault)
    made = FaultRules()
    made.add(rule)
    acted = [made.for_request(PRODUCE, 1, []) is rule for _ in range(matches)]
    last = matches if times is None else nth - 1 + times
    assert acted == [nth <= number <= last for number in range(1, matches + 1)]
    assert rule.hits == sum(acted)
    assert rule.is_spent == (times is not None and rule.hits == times)


@given(seed=st.integers(0, 2**32), chance=st.floats(0.01, 1.0))
def test_chance_is_drawn_from_the_seed(seed: int, chance: float) -> None:
    fault = Fault(effect=Drop(), times=None, chance=chance, seed=seed)
    one, other = Rule(fault), Rule(fault)
    assert [one.take() for _ in range(50)] == [other.take() for _ in range(50)]


def test_a_match_that_chance_lets_pass_is_not_counted_as_a_hit() -> None:
    rule = Rule(Fault(effect=Drop(), times=20, chance=0.5, seed=1))
    acted = [rule.take() for _ in range(200)]
    assert acted.count(True) == rule.hits == 20
    assert False in acted[: acted.index(True) + 10]


@pytest.mark.parametrize(
    ("where", "item", "matches"),
    [
        ({}, (PRODUCE, 1, "t", 0), True),
        ({"api": "Metadata"}, (PRODUCE, 1, "t", 0), False),
        ({"broker": 2}, (PRODUCE, 1, "t", 0), False),
        ({"broker": 1, "topic": "t", "partition": 0}, (PRODUCE, 1, "t", 0), True),
        ({"topic": "u"}, (PRODUCE, 1, "t", 0), False),
        ({"partition": 1}, (PRODUCE, 1, "t", 0), False),
    ],
)
def test_a_rule_matches_where_it_says(where: dict[str, Any], item: tuple[int, int, str, int], matches: bool) -> None:
    made = rules(Fault(effect=Fail(1), **where))
    assert (made.for_item(*item) is not None) is matches


def test_whole_request_rules_look_at_all_items_of_a_request() -> None:
    made = rules(Fault(effect=Drop(), api="Produce", topic="t", partition=3))
    assert made.has_request_rules(PRODUCE) and not made.has_request_rules(METADATA)
    assert made.for_request(PRODUCE, 1, [("t", 1), ("u", 3)]) is None
    assert made.for_request(METADATA, 1, [("t", 3)]) is None
    assert made.for_request(PRODUCE, 1, [("t", 1), ("t", 3)]) is not None


def test_request_rules_item_rules_and_refusals_do_not_take_each_others_turn() -> None:
    omit, run = Omit(), Run(lambda: None)
    made = rules(Fault(effect=omit), Fault(effect=run), Fault(effect=Refuse(), broker=1))
    assert not made.refuses_connection(2)
    assert made.refuses_connection(1) and not made.refuses_connection(1)
    rule = made.for_request(PRODUCE, 1, [])
    assert rule is not None and rule.fault.effect is run
    assert made.has_item_rules(PRODUCE)
    assert made.for_item(PRODUCE, 1, "t", 0) is omit
    assert not made.has_item_rules(PRODUCE) and len(made) <= 2


def is_free(rule: Rule) -> bool:
    """Return whether what the rule holds goes on."""

    async def look() -> bool:
        released = asyncio.ensure_future(rule.released())
        await asyncio.sleep(0)
        released.cancel()
        return released.done()

    return asyncio.run(look())


def test_a_spent_hold_stays_until_it_is_released_by_clearing() -> None:
    made = rules(Fault(effect=Hold(), api="Produce"))
    rule = made.for_request(PRODUCE, 1, [])
    assert rule is not None and rule.is_spent and rule.still_holds
    assert made.for_request(PRODUCE, 1, []) is None
    assert not made.has_request_rules(METADATA) and len(made) == 1 and not is_free(rule)
    made.clear()
    assert is_free(rule) and not made


def test_a_disarmed_hold_keeps_what_it_has_and_a_cancelled_one_lets_it_go() -> None:
    rule = Rule(Fault(effect=Hold(), times=None))
    assert rule.take()
    rule.disarm()
    assert not rule.take() and rule.still_holds and not is_free(rule)
    rule.cancel()
    assert is_free(rule) and not rule.still_holds


def test_a_cancelled_rule_acts_no_more_and_counts_its_hits() -> None:
    rule = Rule(Fault(effect=Fail(1), api="Produce", times=None))
    made = FaultRules()
    made.add(rule)
    made.for_item(PRODUCE, 1)
    made.for_item(PRODUCE, 1)
    rule.cancel()
    assert made.for_item(PRODUCE, 1) is None and rule.hits == 2
    assert "spent hits=2" in repr(rule) and repr(rule) in repr(made)


def test_what_a_rule_holds_is_let_go_on_the_loop_of_the_rules() -> None:
    asked: list[Callable[[], None]] = []
    rule = Rule(Fault(effect=Hold()), asked.append)
    rule.cancel()
    assert not is_free(rule)
    asked.pop()()
    assert is_free(rule)


def test_a_thread_can_wait_for_a_hit() -> None:
    rule = Rule(Fault(effect=Delay(1.0), times=2))
    with pytest.raises(TimeoutError, match=r"0 of 1 hits after 0\.01 s"):
        rule.wait_hit(timeout_s=0.01)
    waiting = threading.Thread(target=rule.wait_hit, args=(2, 5.0))
    waiting.start()
    rule.take()
    rule.take()
    waiting.join(5.0)
    assert not waiting.is_alive()


def test_partitions_are_asked_for_only_if_a_rule_names_one() -> None:
    assert not rules(Fault(effect=Fail(1), api="Metadata")).names_partitions
    assert rules(Fault(effect=Fail(1), api="Metadata", partition=0)).names_partitions


def test_codes_and_apis_by_number_or_name() -> None:
    assert code_of("NOT_LEADER_OR_FOLLOWER") == 6 and code_of(999) == 999
    with pytest.raises(ValueError, match="unknown error name 'NOPE'"):
        code_of("NOPE")
    with pytest.raises(ValueError, match="did you mean 'NOT_LEADER_OR_FOLLOWER'"):
        code_of("not_leader_or_folower")
    with pytest.raises(TypeError, match=r"MemoryProducer\.fail_next takes errors"):
        code_of(DeliveryTimeoutError("late"))  # type: ignore[arg-type]
    assert api_key_of("Produce") == api_key_of("produce") == api_key_of(0) == 0
    assert api_key_of("init_producer_id") == 22 and api_name_of(22) == "InitProducerId" and api_name_of(99) == "Api99"
    with pytest.raises(ValueError, match="unknown API 'Nope'"):
        api_key_of("Nope")
