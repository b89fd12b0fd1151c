"""Done callbacks of Deliveries beside those of futures: drawn functions, contexts, removals, errors and cancellations.

Deliveries of a batch share what is alike about their callbacks. None of that may be seen: each handle's callbacks are
called once, in the order of a future, in a context of their own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import ContextVar, copy_context
from functools import partial
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from virtual_rig import run, started

from aiokprod.testing.virtual import VirtualNetwork

HANDLES = 6
NAME: ContextVar[object] = ContextVar("name")
MORE = [ContextVar[int](f"more-{number}") for number in range(20)]
VALUES: list[object] = [[], [], "a"]  # two that are equal, and not the same


class Calls:
    """The calls that the callbacks of one kind of handle saw."""

    def __init__(self) -> None:
        self.seen: dict[int, list[object]] = {number: [] for number in range(HANDLES)}
        self.broken: list[str] = []
        self.numbers: dict[int, int] = {}

    def note(self, name: str, handle: Any) -> None:
        value = NAME.get("unset")
        at = next((at for at, each in enumerate(VALUES) if each is value), value)
        self.seen[self.numbers[id(handle)]].append((name, at, MORE[0].get(-1), handle.done(), handle.cancelled()))
        NAME.set(f"set by {name}")

    def method(self, handle: Any) -> None:
        self.note("method", handle)

    def broken_method(self, handle: Any) -> None:
        self.note("broken", handle)
        raise LookupError

    def functions(self) -> list[Callable[[], Callable[[Any], None]]]:
        """Return what gives a function each time: the same object, or the method as another object."""
        one, other = partial(self.note, "one"), partial(self.note, "other")
        return [lambda: one, lambda: other, lambda: self.method, lambda: self.broken_method]


ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(0, HANDLES - 1), st.integers(0, 3), st.sampled_from([None, "given"])),
        st.tuples(st.just("remove"), st.integers(0, HANDLES - 1), st.integers(0, 3), st.none()),
        st.tuples(st.just("cancel"), st.integers(0, HANDLES - 1), st.just(0), st.none()),
        st.tuples(st.just("name"), st.integers(0, 2), st.just(0), st.none()),
        st.tuples(st.just("more"), st.sampled_from([1, 20]), st.just(0), st.none()),
        st.tuples(st.just("wait"), st.integers(0, HANDLES - 1), st.just(0), st.none()),
        st.tuples(st.just("settle"), st.just(0), st.just(0), st.none()),
    ),
    max_size=25,
)


async def turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def act(actions: list[tuple[str, int, int, str | None]], handles: list[Any], settle: Callable[[], Any]) -> Calls:
    calls = Calls()
    calls.numbers = {id(handle): number for number, handle in enumerate(handles)}
    functions = calls.functions()
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: calls.broken.append(type(context["exception"]).__name__))
    waiting: list[asyncio.Task[object]] = []

    async def waits(handle: Any) -> object:
        try:
            return (await handle) is not None
        except asyncio.CancelledError:
            return "cancelled"

    for action, number, function, context in [*actions, ("settle", 0, 0, None)]:
        match action:
            case "add" if context is None:
                handles[number].add_done_callback(functions[function]())
            case "add":
                handles[number].add_done_callback(functions[function](), context=copy_context())
            case "remove":
                calls.seen[number].append(("removed", handles[number].remove_done_callback(functions[function]())))
            case "cancel":
                calls.seen[number].append(("cancelled", handles[number].cancel()))
            case "name":
                NAME.set(VALUES[number])
            case "more":
                for variable in MORE[:number]:
                    variable.set(number)
            case "wait":
                waiting.append(asyncio.create_task(waits(handles[number])))
            case _:
                await settle()
        await turns()  # what is called soon has been called before the next action
    calls.seen[0].append([await task for task in waiting])
    return calls


async def of_futures(actions: list[tuple[str, int, int, str | None]]) -> Calls:
    loop = asyncio.get_running_loop()
    futures = [loop.create_future() for _ in range(HANDLES)]

    async def settle() -> None:
        for future in futures:
            if not future.done():
                future.set_result(1)

    return await act(actions, futures, settle)


@settings(deadline=None, max_examples=150)
@given(ACTIONS)
def test_callbacks_are_called_as_those_of_futures(actions: list[tuple[str, int, int, str | None]]) -> None:
    found: list[Calls] = []

    async def scenario(network: VirtualNetwork) -> None:
        async with started(network, linger_ms=0) as (cluster, producer):
            await producer.send("t", b"first")
            cluster.delay_next("Produce", 0.05, times=None)  # so that nothing settles before `settle`
            deliveries = [producer.send("t", b"%d" % number) for number in range(HANDLES)]

            async def settle() -> None:
                await producer.flush()

            found.append(await asyncio.create_task(act(actions, deliveries, settle), context=copy_context()))
            found.append(await asyncio.create_task(of_futures(actions), context=copy_context()))

    run(scenario)
    ours, theirs = found
    assert ours.seen == theirs.seen
    assert sorted(ours.broken) == sorted(theirs.broken)
