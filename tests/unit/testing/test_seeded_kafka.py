"""The marker `kafka_seeds` as its users have it: in a run of pytest of their own."""

from __future__ import annotations

import gc
import re

import pytest

import aiokprod.testing.seeded
from aiokprod import Producer

BROUGHT_IN = (aiokprod.testing.seeded, Producer)  # the inner runs need not do it again, each by itself

pytest_plugins = ["pytester"]

ARGUMENTS = (
    "-p",
    "aiokprod.testing.plugin",
    "-p",
    "no:cacheprovider",
    "-p",
    "no:unraisableexception",
    "-W",
    "error",
    "-q",
)
HEAD = """
import asyncio, pytest
from aiokprod import Producer

async def send(mock_kafka, count=20, **options):
    mock_kafka.create_topic("orders", partitions=3)
    async with Producer(mock_kafka.bootstrap_servers, **options) as producer:
        await asyncio.gather(*(producer.send("orders", b"%d" % number) for number in range(count)))

def numbers(mock_kafka):
    return sorted(int(record.value) for record in mock_kafka.records("orders"))
"""
IS_EXACT = """
@pytest.mark.kafka_seeds({count})
async def test_each_record_is_there_once(mock_kafka):
    await send(mock_kafka, enable_idempotence={idempotent})
    assert numbers(mock_kafka) == list(range(20))
"""


@pytest.fixture(autouse=True)
def only_our_plugin(monkeypatch: pytest.MonkeyPatch) -> None:
    """Load only named plugins in the inner runs, so that they are the same with aiokprod installed and without."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")


def run(pytester: pytest.Pytester, program: str, *arguments: str) -> pytest.RunResult:
    pytester.makepyfile(HEAD + program)
    return pytester.runpytest_inprocess(*ARGUMENTS, *arguments)


def seed_of(result: pytest.RunResult) -> int:
    """Return the seed that fails."""
    found = re.search(r"seed (\d+) fails after", result.stdout.str())
    assert found is not None
    return int(found[1])


def test_a_producer_without_a_word_about_memory_meets_the_cluster_of_each_seed(pytester: pytest.Pytester) -> None:
    run(pytester, IS_EXACT.format(count=60, idempotent=True)).assert_outcomes(passed=1)


def test_a_test_that_is_wrong_fails_with_its_seed_and_its_faults(pytester: pytest.Pytester) -> None:
    result = run(pytester, IS_EXACT.format(count=200, idempotent=False))
    result.assert_outcomes(failed=1)
    seed = seed_of(result)
    result.stdout.fnmatch_lines(
        [
            f"E*seed {seed} fails after {seed} that passed. The faults of the cluster:",
            "E * s  *",
            "E *This seed alone:",
            f'E *pytest "*.py::test_each_record_is_there_once" --kafka-seed {seed}',
        ]
    )

    def told(outcome: pytest.RunResult) -> list[str]:
        return [line for line in outcome.outlines if line.startswith("E  ") and "fails after" not in line]

    again = pytester.runpytest_subprocess(*ARGUMENTS, "--kafka-seed", str(seed))  # another process, another hash seed
    again.assert_outcomes(failed=1)
    assert seed_of(again) == seed and told(again) == told(result)
    if seed > 0:
        pytester.runpytest_inprocess(*ARGUMENTS, "--kafka-seed", "0").assert_outcomes(passed=1)


def test_fixtures_of_a_function_are_new_for_each_seed_and_others_are_not(pytester: pytest.Pytester) -> None:
    program = """
lives = []
ends = []

@pytest.fixture(scope="module")
def shared():
    lives.append("shared")
    yield
    ends.append("shared")

@pytest.fixture
def topic(mock_kafka, kafka_seed):
    mock_kafka.create_topic("a")
    lives.append(kafka_seed)
    yield "a"
    ends.append(kafka_seed)

class TestInAClass:
    count = 0

    @pytest.mark.kafka_seeds(3)
    @pytest.mark.parametrize("value", [b"v", b"w"])
    async def test_it(self, shared, topic, mock_kafka, kafka_seed, value):
        self.count += 1
        assert self.count == 1 and topic in mock_kafka.topics
        print("seed", kafka_seed)
        async with Producer(mock_kafka.bootstrap_servers) as producer:
            await producer.send(topic, value)
        assert [record.value for record in mock_kafka.records(topic)] == [value]

def test_afterwards(shared):
    assert lives == ["shared", 0, 1, 2, 0, 1, 2]
    assert ends == [0, 1, 2, 0, 1, 2]
"""
    result = run(pytester, program, "-rP")
    result.assert_outcomes(passed=3)
    result.stdout.no_fnmatch_line("seed 0")  # what one seed prints is not the next one's
    result.stdout.fnmatch_lines(["seed 2"])


def test_async_fixtures_run_where_the_test_does(pytester: pytest.Pytester) -> None:
    program = """
said = []

@pytest.fixture
async def loop():
    return asyncio.get_running_loop()

@pytest.fixture
async def producer(mock_kafka, loop):
    mock_kafka.create_topic("orders")
    async with Producer(mock_kafka.bootstrap_servers) as producer:
        yield producer
        producer.send("orders", b"bye")
    said.append([record.value for record in mock_kafka.records("orders")])
    await asyncio.sleep(60)

class TestInAClass:
    @pytest.fixture
    async def itself(self):
        yield self

    @pytest.mark.kafka_seeds(10)
    async def test_it(self, producer, loop, itself, mock_kafka):
        assert itself is self and asyncio.get_running_loop() is loop
        await producer.send("orders", b"hello")

def test_afterwards():
    assert said == [[b"hello", b"bye"]] * 10

@pytest.fixture
async def broken(mock_kafka):
    yield
    raise OSError("at the end")

@pytest.mark.kafka_seeds(10)
async def test_its_end(broken):
    pass
"""
    result = run(pytester, program)
    result.assert_outcomes(passed=3, errors=1)
    result.stdout.fnmatch_lines(["E *OSError: at the end", "seed 0 fails after 0 that passed*", "*--kafka-seed 0"])


def test_what_comes_after_a_failed_seed_is_as_if_nothing_were(pytester: pytest.Pytester) -> None:
    program = """
ends = []

@pytest.fixture(scope="module", autouse=True)
def shared():
    yield
    print("the end of the module")

@pytest.mark.kafka_seeds(5)
async def test_fails(mock_kafka, kafka_seed):
    assert kafka_seed < 3

def test_real_time_is_back(mock_kafka):
    import gc, time
    async def scenario():
        began = time.monotonic()
        await asyncio.sleep(0.01)
        assert time.monotonic() - began >= 0.009
        await send(mock_kafka)
    asyncio.run(scenario())
    assert len(mock_kafka.records("orders")) == 20 and gc.isenabled()

@pytest.mark.kafka_seeds(2)
async def test_a_fixture_that_fails(mock_kafka, missing):
    pass

@pytest.mark.kafka_seeds(2)
async def test_skips(mock_kafka):
    pytest.skip("not today")
"""
    result = run(pytester, program, "-rA")
    result.assert_outcomes(passed=1, failed=1, errors=1, skipped=1)
    assert "seed 3 fails after 3 that passed" in result.stdout.str()
    result.stdout.fnmatch_lines(["*fixture 'missing' not found*", "*not today*"])


@pytest.mark.filterwarnings("ignore:Producer .* it was never closed:ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # the same, raised in the inner run
def test_a_producer_left_open_and_a_wait_without_end_are_failures(pytester: pytest.Pytester) -> None:
    program = """
@pytest.mark.kafka_seeds(2)
async def test_left(mock_kafka):
    await Producer(mock_kafka.bootstrap_servers).start()

@pytest.mark.kafka_seeds(2, faults=())
async def test_waits(mock_kafka):
    await asyncio.get_running_loop().create_future()
"""
    result = run(pytester, program)
    gc.collect()  # the producer that was left open warns here, and not in a later test
    result.assert_outcomes(passed=1, errors=1, failed=1)
    result.stdout.fnmatch_lines(["E *LeftoverError: tasks are left: *", "*create_future()", "E *TimeoutError"])


def test_faults_are_chosen_and_the_cluster_has_the_options_it_is_given(pytester: pytest.Pytester) -> None:
    program = """
@pytest.mark.kafka_seeds(30, faults=(), brokers=5, default_partitions=7)
async def test_quiet(mock_kafka):
    mock_kafka.create_topic("made", partitions=-1)
    assert len(mock_kafka.broker_ids) == 5 and mock_kafka.topics["made"] == 7
    await send(mock_kafka)
    quiet.append(mock_kafka.requests_seen("Produce"))

@pytest.mark.kafka_seeds(30, faults=("errors",))
async def test_errors(mock_kafka):
    await send(mock_kafka)
    troubled.append(mock_kafka.requests_seen("Produce"))

quiet, troubled = [], []

def test_there_were_some():
    assert len(quiet) == len(troubled) == 30
    assert max(troubled) > max(quiet)  # what is refused is sent again
"""
    run(pytester, program).assert_outcomes(passed=3)


def test_more_or_fewer_seeds_are_an_option_and_time_is_virtual(pytester: pytest.Pytester) -> None:
    program = """
seeds = []

@pytest.mark.kafka_seeds(2)
async def test_it(mock_kafka, kafka_seed):
    await asyncio.sleep(3600)
    seeds.append(kafka_seed)

def test_which():
    print("seeds", seeds)
"""
    for arguments, seeds in (
        ((), [0, 1]),
        (("--kafka-seeds", "4"), [0, 1, 2, 3]),
        (("--kafka-seed", "7", "--kafka-seed", "5"), [7, 5]),
    ):
        result = run(pytester, program, "-rP", *arguments)
        result.assert_outcomes(passed=2)
        assert f"seeds {seeds}" in result.stdout.str()


@pytest.mark.parametrize(
    ("marker", "test", "text"),
    [
        ("kafka_seeds(3)", "def test_it(mock_kafka)", "is for async tests"),
        ("kafka_seeds(3)", "async def test_it()", "uses the fixture mock_kafka"),
        ("kafka_seeds(0)", "async def test_it(mock_kafka)", "at least one seed"),
        ("kafka_seeds('x')", "async def test_it(mock_kafka)", "count is 'x': it must be a whole number"),
        ("kafka_seeds", "async def test_it(mock_kafka)", "missing 1 required positional argument: 'count'"),
        ("kafka_seeds(3, faults=['gremlins'])", "async def test_it(mock_kafka)", "no such faults: ['gremlins']"),
    ],
)
def test_a_marker_that_makes_no_sense_is_an_error_of_usage(
    pytester: pytest.Pytester, marker: str, test: str, text: str
) -> None:
    result = run(pytester, f"@pytest.mark.{marker}\n{test}: pass\n")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert text in result.stderr.str()


def test_the_seed_belongs_to_marked_tests(pytester: pytest.Pytester) -> None:
    result = run(pytester, "def test_it(kafka_seed): pass\n")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*kafka_seed is for tests marked kafka_seeds*"])


def test_the_marker_and_the_options_tell_what_they_are(pytester: pytest.Pytester) -> None:
    assert "@pytest.mark.kafka_seeds(count" in run(pytester, "", "--markers").stdout.str()
    result = run(pytester, "", "--help")
    result.stdout.fnmatch_lines(["*--kafka-seed*N*", "*--kafka-seeds*COUNT*"])


def test_without_a_marked_test_nothing_of_ours_is_brought_in(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        "import sys\n"
        "def test_it(): assert not [name for name in sys.modules"
        " if name.startswith('aiokprod.') and not name.startswith('aiokprod.testing')]\n"
        "def test_seeds(): assert 'aiokprod.testing.seeded' not in sys.modules\n"
    )
    pytester.runpytest_subprocess(*ARGUMENTS).assert_outcomes(passed=2)


WITH_THREADS = """
import random, threading

VALUES = [random.Random(number).randbytes(2_000) for number in range(120)]
stories = {}

@pytest.fixture(autouse=True)
def no_thread_is_made(monkeypatch):
    def refuse(thread):
        raise AssertionError(thread)
    monkeypatch.setattr(threading.Thread, "start", refuse)

async def story(mock_kafka):
    mock_kafka.create_topic("orders", partitions=2)
    producer = Producer(
        mock_kafka.bootstrap_servers, compression_type="gzip", batch_size=100_000, linger_ms=5,
        security_protocol="SASL_PLAINTEXT", sasl_mechanism="SCRAM-SHA-256", sasl_username="ann", sasl_password="secret",
    )
    async with producer:
        deliveries = [producer.send("orders", value) for value in VALUES]
        recalled = [delivery for delivery in deliveries[::7] if delivery.recall()]
        await asyncio.gather(*(delivery for delivery in deliveries if delivery not in recalled))
    records = mock_kafka.records("orders")
    values = [record.value for record in records]
    assert len(values) + len(recalled) == len(VALUES)
    assert set(values) <= set(VALUES) and len(set(values)) == len(values)
    log = [(record.partition, record.offset, record.timestamp_ms, VALUES.index(record.value)) for record in records]
    return asyncio.get_running_loop().time(), mock_kafka.requests_seen("Produce"), log

secured = pytest.mark.kafka_seeds(10, sasl_mechanisms=["SCRAM-SHA-256"], users={"ann": "secret"})

@secured
async def test_each_record_is_there_once(mock_kafka, kafka_seed):
    stories[kafka_seed] = await story(mock_kafka)

@secured
async def test_and_again(mock_kafka, kafka_seed):
    assert await story(mock_kafka) == stories[kafka_seed]

def test_each_seed_was_another_story():
    assert len({ended_at for ended_at, _, _ in stories.values()}) == 10
"""


def test_large_compressed_batches_and_scram_need_no_thread_and_a_seed_is_one_run(pytester: pytest.Pytester) -> None:
    run(pytester, WITH_THREADS).assert_outcomes(passed=3)
