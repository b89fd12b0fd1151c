"""The plan of a soak: drawn from its seed, each kind alone first, then mixtures that leave the cluster a chance."""

from __future__ import annotations

import random

import pytest
from network import AFTER_APPEND, BEFORE_APPEND, fault_of
from plan import CLASS, LONG, NETWORK, SHORT, Deed, Form, Plan, form_for
from profiles import PROFILES, draw_size

from aiokprod import ProducerConfig
from aiokprod.testing.faults import Answer, Blackhole, Delay, Drip, Drop, Hold, Rewrite, Throttle, Truncate
from aiokprod.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)


def deed_of(kind: str) -> Deed:
    return Deed(kind=kind, node=1, client=0, seconds=1.0, chance=1.0, seed=8)


def test_the_same_seed_gives_the_same_plan_and_another_seed_another_one() -> None:
    def rounds(seed: int) -> list[str]:
        plan = Plan(seed, SHORT)
        return [repr(plan.next_round(number / 60)) for number in range(60)]

    assert rounds(1) == rounds(1)
    assert rounds(1) != rounds(2)


@pytest.mark.parametrize("form", [SHORT, LONG], ids=["short", "long"])
def test_every_kind_is_done_alone_before_any_is_done_again(form: Form) -> None:
    plan = Plan(3, form)
    kinds = [str(plan.next_round(0.0)) for _ in form.kinds]
    assert sorted(kinds) == sorted(form.kinds)
    assert len(set(kinds)) == len(kinds)


def test_a_mixture_hurts_the_cluster_the_network_and_the_clients_at_most_once_each() -> None:
    plan = Plan(4, LONG)
    mixtures = [plan.next_round(0.9).deeds for _ in range(300)]
    for deeds in mixtures:
        classes = [CLASS[deed.kind] for deed in deeds]
        assert len(set(classes)) == len(classes)
    assert sum(len(deeds) > 1 for deeds in mixtures) > 200
    assert {deed.kind for deeds in mixtures for deed in deeds} == set(LONG.kinds)


def test_the_short_form_leaves_a_majority_alone() -> None:
    assert not [kind for kind in SHORT.kinds if kind.endswith((" two", " all"))]
    assert form_for(5) is SHORT
    assert form_for(60) is LONG


def test_the_proxy_takes_every_fault_of_the_network() -> None:
    plan = Plan(5, SHORT)
    seen = set()
    for _ in range(200):
        (deed,) = plan.next_round(0.0).deeds
        if deed.kind in NETWORK and deed.kind not in ("reset storm", "part one broker"):
            seen.add(type(fault_of(deed).effect))
    assert seen == {Drop, Hold, Truncate, Drip, Blackhole, Answer, Rewrite, Throttle, Delay}


@pytest.mark.parametrize("version", [3, 9, 13])
def test_errors_are_told_in_the_version_of_the_request(version: int) -> None:
    request = ProduceRequest(
        acks=-1,
        topic_data=[TopicProduceData(name="t", topic_id=b"i" * 16, partition_data=[PartitionProduceData(index=4)])],
    )
    before = fault_of(deed_of("errors before append")).effect
    assert isinstance(before, Answer)
    refusal = before.make(request, version)
    assert isinstance(refusal, ProduceResponse)
    (topic,) = ProduceResponse.decode(refusal.encode(version), version).responses
    assert (topic.topic_id if version == 13 else topic.name) == (b"i" * 16 if version == 13 else "t")
    assert topic.partition_responses[0].index == 4
    assert topic.partition_responses[0].error_code in BEFORE_APPEND

    good, refused = PartitionProduceResponse(index=4, base_offset=7), PartitionProduceResponse(index=5, error_code=6)
    answer = ProduceResponse(responses=[TopicProduceResponse(name="t", partition_responses=[good, refused])])
    after = fault_of(deed_of("errors after append")).effect
    assert isinstance(after, Rewrite)
    (topic,) = after.change(answer, version).responses  # type: ignore[attr-defined]
    assert topic.partition_responses[0].error_code in AFTER_APPEND
    assert topic.partition_responses[1].error_code == 6, "what was refused in truth stays refused"


def test_the_options_of_the_workloads_are_valid_and_sizes_reach_from_tiny_to_the_limit() -> None:
    draw = random.Random(6)
    for profile in PROFILES:
        for _ in range(20):
            ProducerConfig(bootstrap_servers="b:9092", **profile.settings(draw))
    sizes = [draw_size(draw) for _ in range(50_000)]
    assert min(sizes) == 10
    assert max(sizes) > 990_000
    assert sum(sizes) / len(sizes) < 2_000, "a soak of an hour must fit on the disk"
