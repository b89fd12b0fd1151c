"""The rule list of the scripted faults."""

from __future__ import annotations

import pytest

from aiokprod.testing.mock.api_names import api_key_of, api_name_of
from aiokprod.testing.mock.faults import Drop, Fail, FaultRules, Hold, Omit, Rule, Run, code_of

PRODUCE, METADATA = 0, 3


def rules(*some: Rule) -> FaultRules:
    made = FaultRules()
    for rule in some:
        made.add(rule)
    return made


def test_a_rule_acts_as_often_as_it_says_and_then_is_gone() -> None:
    fail = Fail(7)
    made = rules(Rule(fail, PRODUCE, times=2))
    assert [made.for_item(PRODUCE, 1, "t", 0) for _ in range(3)] == [fail, fail, None]
    assert not made


def test_rules_act_in_the_order_they_were_added_one_at_a_time() -> None:
    first, second = Fail(1), Fail(2)
    made = rules(Rule(first, PRODUCE), Rule(second, PRODUCE))
    assert [made.for_item(PRODUCE, 1, "t", 0) for _ in range(3)] == [first, second, None]


def test_skipping_lets_the_first_ones_pass() -> None:
    fail = Fail(1)
    made = rules(Rule(fail, PRODUCE, skip=2))
    assert [made.for_item(PRODUCE, 1) for _ in range(4)] == [None, None, fail, None]


@pytest.mark.parametrize(
    ("where", "item", "matches"),
    [
        ({}, (PRODUCE, 1, "t", 0), True),
        ({"api_key": METADATA}, (PRODUCE, 1, "t", 0), False),
        ({"broker": 2}, (PRODUCE, 1, "t", 0), False),
        ({"broker": 1, "topic": "t", "partition": 0}, (PRODUCE, 1, "t", 0), True),
        ({"topic": "u"}, (PRODUCE, 1, "t", 0), False),
        ({"partition": 1}, (PRODUCE, 1, "t", 0), False),
    ],
)
def test_a_rule_matches_where_it_says(where: dict[str, object], item: tuple[int, int, str, int], matches: bool) -> None:
    made = rules(Rule(Fail(1), **where))  # type: ignore[arg-type]
    assert (made.for_item(*item) is not None) is matches


def test_whole_request_rules_look_at_all_items_of_a_request() -> None:
    drop = Drop(True)
    made = rules(Rule(drop, PRODUCE, topic="t", partition=3))
    assert made.has_request_rules(PRODUCE) and not made.has_request_rules(METADATA)
    assert made.for_request(PRODUCE, 1, [("t", 1), ("u", 3)]) is None
    assert made.for_request(METADATA, 1, [("t", 3)]) is None
    assert made.for_request(PRODUCE, 1, [("t", 1), ("t", 3)]) is drop


def test_request_rules_and_item_rules_do_not_take_each_others_turn() -> None:
    omit, run = Omit(), Run(lambda: None)
    made = rules(Rule(omit, PRODUCE), Rule(run, PRODUCE))
    assert made.for_request(PRODUCE, 1, []) is run
    assert made.for_item(PRODUCE, 1, "t", 0) is omit


def test_clearing_releases_what_is_held() -> None:
    hold = Hold(before_serving=False)
    made = rules(Rule(hold, PRODUCE, times=None))
    assert made.for_request(PRODUCE, 1, []) is hold
    made.clear()
    assert hold.released.is_set() and not made


def test_a_cancelled_rule_acts_no_more_and_counts_its_hits() -> None:
    rule = Rule(Fail(1), PRODUCE, times=None)
    made = rules(rule)
    made.for_item(PRODUCE, 1)
    made.for_item(PRODUCE, 1)
    rule.cancel()
    assert made.for_item(PRODUCE, 1) is None and rule.hits == 2


def test_partitions_are_asked_for_only_if_a_rule_names_one() -> None:
    assert not rules(Rule(Fail(1), METADATA)).names_partitions
    assert rules(Rule(Fail(1), METADATA, partition=0)).names_partitions


def test_codes_and_apis_by_number_or_name() -> None:
    assert code_of("NOT_LEADER_OR_FOLLOWER") == 6 and code_of(999) == 999
    with pytest.raises(ValueError, match="unknown error name 'NOPE'"):
        code_of("NOPE")
    assert api_key_of("Produce") == api_key_of("produce") == api_key_of(0) == 0
    assert api_key_of("init_producer_id") == 22 and api_name_of(22) == "InitProducerId" and api_name_of(99) == "Api99"
    with pytest.raises(ValueError, match="serves no API 'Nope'"):
        api_key_of("Nope")
