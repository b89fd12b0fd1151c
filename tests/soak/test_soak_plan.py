"""The plan of a soak: drawn from its seed, each kind alone first, then mixtures that leave the cluster a chance."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from network import AFTER_APPEND, BEFORE_APPEND, busy_node, fault_of, harm
from plan import CLASS, LONG, MAJORITY, NETWORK, REGULAR, SHORT, Form, Injection, Plan, form_for
from profiles import CODECS, LINGERS_MS, LOGIN, PLAIN, PROFILES, TLS, W1, draw_size, draw_small_size

from aiokprod import ProducerConfig
from aiokprod.testing.faults import Answer, Blackhole, Drip, Drop, Hold, Rewrite, Throttle, Truncate
from aiokprod.testing.proxy import Distance
from aiokprod.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)

WITHOUT_RULE = ("reset storm", "part one broker", "far away", "change address")


def injection_of(kind: str) -> Injection:
    return Injection(kind=kind, node=1, client=0, seconds=1.0, chance=1.0, seed=8)


def test_the_same_seed_gives_the_same_plan_and_another_seed_another_one() -> None:
    def rounds(seed: int, regular_after: int = 99) -> list[str]:
        plan = Plan(seed, SHORT)
        found = []
        for number in range(60):
            found.append(repr(plan.next_round(number / 60)))
            if number >= regular_after:
                plan.regular()
        return found

    assert rounds(1) == rounds(1)
    assert rounds(1) != rounds(2)
    assert rounds(1) == rounds(1, regular_after=5), "what comes by the clock changes nothing of what is drawn"


@pytest.mark.parametrize("form", [SHORT, LONG], ids=["short", "long"])
def test_every_kind_is_done_alone_before_any_is_done_again(form: Form) -> None:
    plan = Plan(3, form)
    kinds = [str(plan.next_round(0.0)) for _ in form.kinds]
    assert sorted(kinds) == sorted(form.kinds)
    assert len(set(kinds)) == len(kinds)


def test_everything_the_catalogue_names_is_in_the_plan() -> None:
    named = {
        "kill", "kill two", "kill all", "terminate", "terminate two", "terminate all", "freeze", "freeze two",
        "freeze all", "kill controller", "shuffle leaders", "elect preferred", "shrink isr", "cut requests",
        "cut answers", "hold answer", "hold request", "half request", "half answer", "drip", "reset storm",
        "blackhole requests", "blackhole answers", "part one broker", "far away", "errors before append",
        "errors after append", "throttle", "quota", "swap certificate", "change address", "freeze client", "block loop",
        "kill client", "grow topic", "make topic again",
    }  # fmt: skip
    assert set(LONG.kinds) == named
    assert set(SHORT.kinds) == named - set(MAJORITY)
    assert [injection.kind for injection in Plan(1, SHORT).regular().injections] == list(REGULAR) == ["new topic"]
    assert {injection.client for _ in range(200) for injection in Plan(_, SHORT).next_round(0.0).injections} == set(
        range(5)
    )


def test_a_mixture_hurts_the_cluster_the_network_and_the_clients_at_most_once_each() -> None:
    plan = Plan(4, LONG)
    mixtures = [plan.next_round(0.9).injections for _ in range(300)]
    for injections in mixtures:
        classes = [CLASS[injection.kind] for injection in injections]
        assert len(set(classes)) == len(classes)
    assert sum(len(injections) > 1 for injections in mixtures) > 200
    assert {injection.kind for injections in mixtures for injection in injections} == set(LONG.kinds)


def test_the_short_form_leaves_a_majority_alone() -> None:
    assert not [kind for kind in SHORT.kinds if kind.endswith((" two", " all"))]
    assert {kind for kind in LONG.kinds if kind.endswith((" two", " all"))} == set(MAJORITY)
    assert form_for(5) is SHORT
    assert form_for(60) is LONG


def test_the_proxy_takes_every_fault_of_the_network() -> None:
    plan = Plan(5, SHORT)
    seen = set()
    for _ in range(300):
        (injection,) = plan.next_round(0.0).injections
        if injection.kind in NETWORK and injection.kind not in WITHOUT_RULE:
            seen.add(type(fault_of(injection).effect))
    assert seen == {Drop, Hold, Truncate, Drip, Blackhole, Answer, Rewrite, Throttle}


@pytest.mark.parametrize("version", [3, 9, 13])
def test_errors_are_told_in_the_version_of_the_request(version: int) -> None:
    request = ProduceRequest(
        acks=-1,
        topic_data=[TopicProduceData(name="t", topic_id=b"i" * 16, partition_data=[PartitionProduceData(index=4)])],
    )
    before = fault_of(injection_of("errors before append")).effect
    assert isinstance(before, Answer)
    refusal = before.make(request, version)
    assert isinstance(refusal, ProduceResponse)
    (topic,) = ProduceResponse.decode(refusal.encode(version), version).responses
    assert (topic.topic_id if version == 13 else topic.name) == (b"i" * 16 if version == 13 else "t")
    assert topic.partition_responses[0].index == 4
    assert topic.partition_responses[0].error_code in BEFORE_APPEND

    good, refused = PartitionProduceResponse(index=4, base_offset=7), PartitionProduceResponse(index=5, error_code=6)
    answer = ProduceResponse(responses=[TopicProduceResponse(name="t", partition_responses=[good, refused])])
    after = fault_of(injection_of("errors after append")).effect
    assert isinstance(after, Rewrite)
    (topic,) = after.change(answer, version).responses  # type: ignore[attr-defined]
    assert topic.partition_responses[0].error_code in AFTER_APPEND
    assert topic.partition_responses[0].base_offset == 7, "by which a client knows that it is in the log"
    assert topic.partition_responses[1].error_code == 6, "what was refused in truth stays refused"


class Proxy:
    """A proxy that notes its calls."""

    def __init__(self) -> None:
        self.told: list[object] = []
        self.seen = Counter[int]()

    def requests_seen(self, api: str, node: int) -> int:
        assert api == "Produce"
        return self.seen[node]

    def set_distance(self, node: int, distance: Distance | None) -> None:
        self.told.append((node, distance))

    def segments(self, node: int) -> tuple[int, int]:
        return 300, 4


@pytest.mark.parametrize(
    ("requests", "chosen"), [({1: 1, 2: 9}, 1), ({2: 1, 3: 9}, 3), ({}, 1)], ids=["wanted", "busiest", "none"]
)
def test_a_fault_of_a_broker_meets_one_to_which_records_go(requests: dict[int, int], chosen: int) -> None:
    proxy = Proxy()
    proxy.seen.update({1: 70, 2: 5})  # before
    pause = lambda seconds: proxy.seen.update(requests)  # noqa: E731
    assert busy_node([proxy], 1, (1, 2, 3), pause) == chosen  # type: ignore[list-item]


def test_a_broker_that_is_far_away_comes_back() -> None:
    proxies = [Proxy(), Proxy()]
    waited: list[float] = []
    met = harm(proxies, injection_of("far away"), waited.append)  # type: ignore[arg-type]
    assert met == (600, "segments, 8 of them lost")
    assert waited == [1.0]
    far = Distance(delay_s=0.1, bytes_per_s=3e6 / 8, loss=0.01, seed=8)
    assert proxies[0].told == proxies[1].told == [(1, far), (1, None)]


@pytest.mark.parametrize("seed", range(20))
def test_at_any_time_the_workloads_have_every_codec_and_linger_and_each_life_has_others(seed: int) -> None:
    first = {each.name: each.settings(seed, 0) for each in PROFILES if each.topics == W1}
    assert len(first) == 4
    assert {each["compression_type"] for each in first.values()} == set(CODECS)
    assert {each["linger_ms"] for each in first.values()} == set(LINGERS_MS)
    assert {each["max_in_flight_requests_per_connection"] for each in first.values()} == {1, 5}
    for profile in PROFILES:
        turns = [profile.settings(seed, turn) for turn in range(4)]
        assert {each["compression_type"] for each in turns} == set(CODECS)
        ProducerConfig(bootstrap_servers="b:9092", **turns[0])


def test_workloads_speak_plainly_with_a_password_and_with_certificates() -> None:
    assert [each.listener for each in PROFILES] == [PLAIN, PLAIN, LOGIN, TLS, PLAIN, PLAIN]
    assert list(W1.values()) == [1, 6, 48]
    assert [each.name for each in PROFILES if each.churns] == ["mixed", "churn"]
    assert PROFILES[-1].name == "churn", "the nemesis tells it of topics"


def test_the_workload_with_a_small_buffer_has_another_one_each_time() -> None:
    (mixed,) = (each for each in PROFILES if each.mixes)
    turns = [mixed.settings(1, turn) for turn in range(40)]
    assert len({each["buffer_memory"] for each in turns}) > 30
    assert all(24_000 <= each["buffer_memory"] < 96_000 for each in turns)
    assert {each["max_waiting_bytes"] for each in turns} == {0, 20_000, 200_000}
    assert {each["max_in_flight_requests_per_connection"] for each in turns} == {1, 2, 5}
    draw = random.Random(6)
    sizes = [draw_small_size(draw) for _ in range(10_000)]
    assert min(sizes) == 10
    assert 50 < sum(size > turns[0]["max_request_size"] for size in sizes) < 200


def test_sizes_reach_from_tiny_to_the_limit() -> None:
    draw = random.Random(6)
    sizes = [draw_size(draw) for _ in range(50_000)]
    assert min(sizes) == 10
    assert 0.0005 < sum(size > 65_536 for size in sizes) / len(sizes) < 0.002
    assert max(sizes) > 990_000
    below = sum(size < 810 for size in sizes) / len(sizes)
    assert 0.48 < below < 0.52, "the logarithm of sizes is uniform"
