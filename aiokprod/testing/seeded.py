"""`SeededTest`: a user's async test, run once per seed in virtual time against a MockCluster with random faults.

One per test marked `kafka_seeds`, in the place of the item that pytest (or the plugin of an async runner) made of it. Each
seed is a whole run of the test, with new function-scoped fixtures. The first seed that fails ends it, and its report names
the faults of the cluster and how to run that seed alone.

Invariants: the test is one item with one outcome, whatever the number of seeds; nothing of a seed outlives it.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import AsyncIterator, Collection, Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, Self, cast

import pytest

# Running an item again is not in pytest's public interface; `runtestprotocol` is made for it (pytest-rerunfailures).
from _pytest.runner import runtestprotocol

from aiokprod.testing.mock import MockCluster
from aiokprod.testing.virtual.nemesis import Nemesis
from aiokprod.testing.virtual.run import VirtualRun

MARK: Final = "kafka_seeds"
CLUSTER_FIXTURE: Final = "mock_kafka"
LONGEST_S: Final = 86_400.0
"""A test that takes a day of virtual time waits for what never comes."""
PASSED_THROUGH = (KeyboardInterrupt, SystemExit, GeneratorExit, pytest.exit.Exception, pytest.skip.Exception)


class SeededTest(pytest.Function):
    """The pytest item of a marked test."""

    seeds: Sequence[int] = ()
    kafka_seed = 0
    _faults: Collection[str] = Nemesis.KINDS
    _cluster_options: dict[str, Any] = {}  # noqa: RUF012 - replaced by `instead_of`, never changed
    _run: VirtualRun | None = None
    _nemesis: Nemesis | None = None
    _story: Sequence[str] = ()
    _is_whole = False  # the test has ended as it should

    @classmethod
    def instead_of(cls, item: pytest.Function) -> Self:
        """Make the item that runs the same test once per seed.

        Raises:
            pytest.UsageError: the marker or the test makes no sense.
        """
        assert item.parent is not None
        if not inspect.iscoroutinefunction(item.obj):
            raise pytest.UsageError(f"{item.nodeid}: {MARK} is for async tests")
        if CLUSTER_FIXTURE not in item.fixturenames:
            raise pytest.UsageError(f"{item.nodeid}: a test with {MARK} uses the fixture {CLUSTER_FIXTURE}")
        seeded: Self = cast(Any, cls).from_parent(
            item.parent,
            name=item.name,
            callspec=getattr(item, "callspec", None),
            fixtureinfo=item._fixtureinfo,
            keywords=item.keywords,
            originalname=item.originalname,
        )
        seeded.own_markers = item.own_markers
        seeded._read_marker()
        return seeded

    def _read_marker(self) -> None:
        marker = self.get_closest_marker(MARK)
        assert marker is not None

        def arguments(count: int, *, faults: Collection[str] = Nemesis.KINDS, **cluster_options: object) -> None:
            if isinstance(count, bool) or not isinstance(count, int):
                raise TypeError(f"count is {count!r}: it must be a whole number")
            if count < 1:
                raise ValueError("at least one seed")
            if unknown := set(faults) - set(Nemesis.KINDS):
                raise ValueError(f"no such faults: {sorted(unknown)}; there are {', '.join(Nemesis.KINDS)}")
            self.seeds, self._faults, self._cluster_options = range(count), faults, cluster_options

        try:
            arguments(*marker.args, **marker.kwargs)
        except (TypeError, ValueError) as wrong:
            raise pytest.UsageError(f"{self.nodeid}: {MARK}: {wrong}") from wrong
        if (chosen := self.config.getoption("kafka_seed")) is not None:
            self.seeds = chosen
        elif (count := self.config.getoption("kafka_seeds")) is not None:
            self.seeds = range(count)

    # ------------------------------------------------------------------ all seeds
    def run_seeds(self, nextitem: pytest.Item | None) -> None:
        """Run the test seed after seed, and report the last of them."""
        self.ihook.pytest_runtest_logstart(nodeid=self.nodeid, location=self.location)
        began = time.perf_counter()
        reports: list[pytest.TestReport] = []
        for seed in self.seeds:
            self.kafka_seed = seed
            # The parent as the next item: this item is torn down, and what it shares with others stays.
            reports = runtestprotocol(self, log=False, nextitem=self.parent)  # type: ignore[arg-type]
            for report in reports:
                if report.failed and "--kafka-seed" not in report.longreprtext:  # a fixture failed, not the test
                    report.sections.append((MARK, self._replay()))
            if not all(report.passed for report in reports):
                break
        session = cast(Any, self.session)  # to tear down is not in pytest's public interface, either
        shared = pytest.CallInfo[None].from_call(lambda: session._setupstate.teardown_exact(nextitem), when="teardown")
        if shared.excinfo is not None and reports[-1].passed:
            reports[-1] = pytest.TestReport.from_item_and_call(self, shared)
        for report in reports:
            if report.when == "call":
                report.duration = time.perf_counter() - began
            self.ihook.pytest_runtest_logreport(report=report)
        self.ihook.pytest_runtest_logfinish(nodeid=self.nodeid, location=self.location)

    # ------------------------------------------------------------------ one seed
    def setup(self) -> None:
        """Set up a loop, a network and random numbers, then the fixtures."""
        self._report_sections.clear()  # what other seeds have printed
        for cached in ("_obj", "_instance"):  # a test class has a new instance for each seed
            vars(self).pop(cached, None)
        self._story = []
        self._run = VirtualRun(self.kafka_seed)
        self._run.__enter__()
        super().setup()

    def teardown(self) -> None:
        """Tear down the fixtures, then check that nothing of the test is left."""
        __tracebackhide__ = True
        run, is_whole = self._run, self._is_whole
        self._run, self._nemesis, self._is_whole = None, None, False
        super().teardown()
        if run is None:
            return
        try:
            if is_whole:
                with self._telling():
                    run.check()
        finally:
            run.__exit__(None, None, None)

    @contextmanager
    def seeded_cluster(self) -> Generator[MockCluster]:
        """Provide the fixture `mock_kafka`: the cluster of this seed, in memory."""
        run = self._run
        assert run is not None
        options: dict[str, Any] = {
            "seed": self.kafka_seed,
            "now_ms": lambda: int(1000 * run.loop.wall_s()),
        } | self._cluster_options
        cluster = MockCluster(network=run.network, **options)
        run.wait_for(cluster.__aenter__())
        try:
            self._nemesis = Nemesis(cluster, run.network, run.random, self._faults)
            self._story = self._nemesis.story
            yield cluster
        finally:
            run.wait_for(cluster.__aexit__(None, None, None))

    @contextmanager
    def running_fixture(self, fixture: pytest.FixtureDef[Any]) -> Generator[None]:
        """Provide a context in which async fixtures run on the loop of this seed.

        What stands in its place has nothing of it, so that plugins of async runners take it for what it is: not async.
        """
        replaceable: Any = fixture  # `func` is final to type checkers; plugins of async runners replace it as well
        function = replaceable.func
        run = self._run
        assert run is not None

        def bound() -> Any:
            """Return the function, bound to the instance of the test."""
            if inspect.ismethod(function) and type(function.__self__) is type(self.instance):
                return function.__func__.__get__(self.instance)
            return function

        async def step(values: AsyncIterator[object]) -> object:
            return await anext(values, None)

        def of_coroutine(**arguments: object) -> object:
            return run.wait_for(bound()(**arguments))

        def of_generator(**arguments: object) -> Iterator[object]:
            values = bound()(**arguments)
            yield run.wait_for(step(values))
            run.wait_for(step(values))

        if inspect.isasyncgenfunction(function):
            replaceable.func = of_generator
        elif inspect.iscoroutinefunction(function):
            replaceable.func = of_coroutine
        try:
            yield
        finally:
            replaceable.func = function

    def runtest(self) -> None:
        """Run the test, and the faults of the cluster meanwhile."""
        __tracebackhide__ = True
        run, nemesis = self._run, self._nemesis
        assert run is not None and nemesis is not None
        arguments = {name: self.funcargs[name] for name in self._fixtureinfo.argnames}

        async def play() -> None:
            breaking = asyncio.create_task(nemesis.run(), name="nemesis")
            try:
                async with asyncio.timeout(LONGEST_S):
                    await self.obj(**arguments)
            finally:
                breaking.cancel()
                (ended,) = await asyncio.gather(breaking, return_exceptions=True)
                nemesis.heal()
            if isinstance(ended, Exception):
                raise ended

        with self._telling():
            run.wait_for(play())
        self._is_whole = True

    @contextmanager
    def _telling(self) -> Generator[None]:
        """Add the story and the seed to the message of an error."""
        __tracebackhide__ = True
        try:
            yield
        except PASSED_THROUGH:
            raise
        except BaseException as error:
            error.add_note(f"\n{self._replay()}")
            raise

    def _replay(self) -> str:
        before = self.seeds.index(self.kafka_seed)
        lines = [f"seed {self.kafka_seed} fails after {before} that passed. The faults of the cluster:"]
        lines += [f"  {fault}" for fault in self._story or ["none"]]
        lines += ["This seed alone:", f'  pytest "{self.nodeid}" --kafka-seed {self.kafka_seed}']
        return "\n".join(lines)
