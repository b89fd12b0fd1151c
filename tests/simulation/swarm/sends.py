"""Operations on single records: send and try_send, all ways to wait for the outcome, recall, cancel, bad arguments."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

from aiokprod import Delivery
from aiokprod.errors import AiokprodError, BufferFullError, UsageError, WrongLoopError
from aiokprod.explanation import WaitsFor

from .books import Account, shown
from .hooks import ENDS_THE_LOOP, KINDS, is_deliberate
from .scene import Life, Scene
from .world_values import Step

FILLER = b"abcdefghijklmnopqrstuvwxyz0123456789" * 6_000


def value_of(number: int, size: int) -> bytes:
    """Return a value: the number, a space, and filler up to the size."""
    word = b"%d " % number
    return word + FILLER[: max(0, size - len(word))]


class Sends:
    """The sends, and their listeners."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.books = scene.books

    # ------------------------------------------------------------------ sending
    def send(self, step: Step) -> None:
        """Send `count` records one after the other, watched as the step says."""
        args = step.args
        life = self._life(args)
        if args.get("grown"):
            self.scene.grow_to(args["topic"], args["partition"] + 1)
        sent: list[Account] = []
        for index in range(args.get("count", 1)):
            partition = args.get("partition")
            if partition is not None and args.get("spread"):
                partition = (partition + index) % args["spread"]
            if index == 0:
                partition = args.get("first_partition", partition)
            timeout = args.get("timeout")
            if timeout is not None:
                timeout += index * args.get("timeout_step", 0.0)
            account = self.one(
                life, args["topic"], args["size"], partition, timeout, key=args.get("key"), via=args.get("via", "send")
            )
            if account.delivery is not None:
                sent.append(account)
        self._watch(sent, args)
        if args.get("recalled") is not None and sent:  # while a thread compresses the others, for instance
            turns, index = args["recalled"]
            self.scene.hop(turns, lambda _: self._recall(sent[index % len(sent)]), step)

    def one(
        self,
        life: Life,
        topic: str,
        size: int,
        partition: int | None = None,
        timeout: float | None = None,
        *,
        key: int | None = None,
        via: str = "send",
        around: Callable[[Callable[[], Delivery]], Delivery] | None = None,
        is_inside: bool = False,
    ) -> Account:
        """Call send or try_send once, and note it.

        `around` makes the call, and may let it meet a fault. `is_inside`: in the middle of code of the library, where nothing
        else may be called.
        """
        producer, scene = life.producer, self.scene
        was_empty = not is_inside and producer.health().buffered_bytes == 0
        account = self.books.account(topic, partition, life.key, via, size)
        account.due_at = account.sent_at + life.delivery_s
        account.timeout_at = None if timeout is None else account.sent_at + timeout
        account.existed = partition is None or partition < scene.partitions_of(topic)
        call = producer.try_send if via == "try_send" else producer.send
        key_bytes = None if key is None else b"k%d" % key
        was_nested, self.books.nested = self.books.nested, False
        send = partial(call, topic, value_of(account.number, size), key_bytes, partition=partition, timeout=timeout)
        try:
            account.delivery = send() if around is None else around(send)
        except AiokprodError as refused:
            account.refused = refused
            self._judge_refusal(life, account, refused, was_empty)
        except BaseException as bare:
            if scene.is_planting or (isinstance(bare, ENDS_THE_LOOP) and is_deliberate(bare)):
                # Taken or not: it is in the log once at most.
                account.gave_up = True
                scene.tell(f"{account}: {type(bare).__name__} came out of {via}")
            elif isinstance(bare, Exception):
                account.refused = bare
                self.books.wrong(f"bare {type(bare).__name__}", f"{account}: {via} raised {bare!r:.300}")
            else:
                raise
        finally:
            self.books.nested = was_nested
        if account.refused is None and account.delivery is not None and not is_inside:
            if life.is_ending:
                self.books.wrong("let in while ending", f"{account}")
            waits_for_room = account.delivery.explain().waits_for is WaitsFor.ROOM
            # Behind a strike it may be put off to the next turn, in the same line.
            if scene.world.may_be_healed:
                pass
            elif via == "try_send" and waits_for_room:
                self.books.wrong("try_send waits", f"{account} waits for room")
            elif was_empty and waits_for_room and producer.metrics()["buffer_waiting_records"] == 1:
                self.books.wrong("never fits", f"{account} waits for room in an empty buffer")
        return account

    def _judge_refusal(self, life: Life, account: Account, refused: AiokprodError, was_empty: bool) -> None:
        if isinstance(refused, BufferFullError) and was_empty:
            waiting = life.producer.metrics()["buffer_waiting_records"]
            if not waiting:
                self.books.wrong("never fits", f"{account}: {refused!r:.200} though the buffer is empty")
        # Outside of a transaction every record is refused. A partitioner's record that cannot be put off is (docs/sending.md).
        is_at_work = "interrupted the producer at work" in str(refused)
        if isinstance(refused, WrongLoopError) and asyncio._get_running_loop() is None:
            return  # a finalizer that came in a thread that compresses
        if (
            isinstance(refused, UsageError)
            and not is_at_work
            and life.is_open
            and not life.has_failed
            and not life.is_transactional
        ):
            self.books.wrong("refused while open", f"{account}: {refused!r:.200}")

    def again(self, index: int) -> None:
        """Send one more record, from user code that the producer calls."""
        life = self.scene.lives[index]
        topics = self.scene.world.topics
        topic = topics[0]["name"] if topics else "late"
        account = self.one(life, topic, 20)
        account.via = "send again"

    def tenants(self, step: Step) -> None:
        """Send records for many topics that do not exist."""
        life = self._life(step.args)
        for number in range(step.args["count"]):
            self.one(life, f"tenant-{step.args['first'] + number}", 10, via="tenant")

    # ------------------------------------------------------------------ listening
    async def wait(self, account: Account) -> None:
        """Await the Delivery, and note what is told."""
        await self._await(account, None)

    def _watch(self, accounts: list[Account], args: dict[str, Any]) -> None:
        how, after = args.get("watch", "drop"), args.get("after")
        spawn = self.scene.spawn
        if not accounts:
            return
        if how == "release":
            for account in accounts:
                account.delivery = None
                account.released = True
        elif how == "callback":
            for account in accounts:
                self._call_back(account, args)
        elif how in ("gather", "gather_all"):
            spawn(self._gather(accounts, after, how == "gather_all"), f"gather of {accounts[0]}")
        elif how in ("await", "wait_for", "task", "poll", "shield"):
            wait = {
                "await": self._await, "wait_for": self._wait_for, "task": self._task, "poll": self._poll, "shield": self._shield
            }[how]  # fmt: skip
            for account in accounts:
                spawn(wait(account, after), f"{how} of {account}")
        elif how == "cancel":
            self.scene.later(after or 0.0, self._cancel_all, accounts, args.get("awaited", False))
            if args.get("awaited"):
                for account in accounts:
                    spawn(self._await(account, None), f"await of {account}")

    def _heard(self, account: Account, outcome: object) -> None:
        self.books.hear(account, outcome)

    def _call_back(self, account: Account, args: dict[str, Any]) -> None:
        assert account.delivery is not None
        action = args.get("action")

        def call(delivery: Delivery) -> None:
            account.callback_calls += 1
            self._heard(account, "cancelled" if delivery.cancelled() else delivery.exception() or delivery.result())
            if action is not None:
                if action == "raise":
                    raise KINDS[args.get("kind") or "error"]("Deliberate: user code raises")  # the others are called
                self.scene.lives[account.life[0]].hooks.react(action, args)

        account.callbacks += 1
        self.books.listen(account)
        account.delivery.add_done_callback(call)
        if args.get("after") is not None:
            self.scene.later(args["after"], self._call_off, account, call)

    def _call_off(self, account: Account, call: Any) -> None:
        assert account.delivery is not None
        if account.delivery.remove_done_callback(call) and not account.callback_calls:
            account.callbacks -= 1
            self.books.leave(account)

    async def _await(self, account: Account, after: float | None) -> None:
        assert account.delivery is not None
        self.books.listen(account)
        try:
            if after is None:
                self._heard(account, await account.delivery)
            else:
                async with asyncio.timeout(after):
                    self._heard(account, await account.delivery)
        except AiokprodError as error:
            self._heard(account, error)
        except TimeoutError:
            self.books.leave(account)
        except asyncio.CancelledError:
            self._cancelled(account)

    async def _wait_for(self, account: Account, after: float | None) -> None:
        assert account.delivery is not None
        self.books.listen(account)
        try:
            self._heard(account, await asyncio.wait_for(account.delivery.wait(), after))
        except AiokprodError as error:
            self._heard(account, error)
        except TimeoutError:
            self.books.leave(account)
        except asyncio.CancelledError:
            self._cancelled(account)

    async def _task(self, account: Account, after: float | None) -> None:
        """Wait in a task that another one cancels; then await the handle again."""
        assert account.delivery is not None
        task = asyncio.ensure_future(account.delivery.wait())
        self.books.listen(account)
        await asyncio.wait({task}, timeout=after)
        task.cancel()
        await asyncio.wait({task})
        self.books.leave(account)
        if not task.cancelled() and task.exception() is None:
            self._heard(account, task.result())
            return
        await self._await(account, None)

    async def _poll(self, account: Account, after: float | None) -> None:
        delivery = account.delivery
        assert delivery is not None
        for _ in range(12):
            self.books.listen(account)
            await asyncio.wait({delivery}, timeout=after or 0.05)  # type: ignore[type-var]
            self.books.leave(account)
            if delivery.done():
                break
        watched = getattr(delivery._position()[0], "watched", ())
        count = getattr(delivery._position()[0], "count", 0)
        if len(watched) > 2 * count:
            self.books.wrong("watched grows", f"{account}: {len(watched)} are kept for a batch of {count}")

    async def _shield(self, account: Account, after: float | None) -> None:
        delivery = account.delivery
        assert delivery is not None
        self.books.listen(account)  # asyncio's shield leaves its callback with the inner one
        try:
            async with asyncio.timeout(after):
                self._heard(account, await asyncio.shield(delivery))
        except AiokprodError as error:
            self._heard(account, error)
        except (TimeoutError, asyncio.CancelledError):
            account.gave_up = True

    async def _gather(self, accounts: list[Account], after: float | None, with_all: bool) -> None:
        deliveries = [account.delivery for account in accounts]
        for account in accounts:
            self.books.listen(account)
            account.is_gathered = True
        gathered: Any = asyncio.gather(*deliveries, return_exceptions=with_all)  # type: ignore[arg-type]
        if after is not None:
            self.scene.later(after, gathered.cancel)
        try:
            for account, outcome in zip(accounts, await gathered, strict=True):
                self._heard(account, "cancelled" if isinstance(outcome, asyncio.CancelledError) else outcome)
        except (AiokprodError, asyncio.CancelledError) as caught:
            caught.__traceback__ = None  # as in `Books.hear`
            for account in accounts:
                account.gave_up = True
                if account.delivery is not None and account.delivery.cancelled():
                    self.books.leave(account)

    def _cancelled(self, account: Account) -> None:
        """Note that the handle was detached, or that the waiting task was cancelled."""
        assert account.delivery is not None
        if account.delivery.cancelled():
            self._heard(account, "cancelled")
        else:
            self.books.leave(account)

    def _cancel_all(self, accounts: list[Account], _: bool) -> None:
        for account in accounts:
            self._detach(account)

    def _detach(self, account: Account) -> None:
        delivery = account.delivery
        if delivery is None:
            return
        was_done = delivery.done()
        if delivery.cancel() is was_done:
            self.books.wrong("cancel lies", f"{account}: cancel() said {not was_done}")
        if not was_done:
            account.detached_at = self.scene.now()

    # ------------------------------------------------------------------ taking back
    def recall(self, step: Step) -> None:
        """Recall `count` of the newest records, `skip` between them."""
        every = [account for account in self.books.accounts if account.delivery is not None]
        chosen = every[:: -step.args.get("skip", 1)][: step.args.get("count", 1)]
        if step.args.get("oldest"):
            chosen.reverse()
        for account in chosen:
            self._recall(account)

    def _recall(self, account: Account) -> None:
        if account.delivery is None:
            return
        before = account.record_outcome()
        if account.delivery.recall():
            outcome = account.record_outcome()
            if before is not None or outcome is None or "RecordRecalledError" not in shown(outcome):
                self.books.wrong("recall lies", f"{account}: recall() said True, before {before}, now {outcome}")

    def detach(self, step: Step) -> None:
        """Call Delivery.cancel on the newest records."""
        every = [account for account in self.books.accounts if account.delivery is not None]
        for account in every[:: -step.args.get("skip", 1)][: step.args.get("count", 1)]:
            self._detach(account)

    # ------------------------------------------------------------------ misuse
    def misuse(self, step: Step) -> None:
        """Send with an invalid argument; nothing of it may be accepted."""
        args = step.args
        life = self._life(args)
        account = self.books.account(str(args["topic"]), None, life.key, "misuse", 5)
        value = value_of(account.number, 5)
        call: dict[str, Any] = {"topic": args["topic"], "value": value, args["what"]: args["bad"]}
        charged, topic = life.producer.health().buffered_bytes, call.pop("topic")
        self.books.misused, accounts = account.number, len(self.books.accounts)
        try:
            account.delivery = life.producer.send(topic, call.pop("value"), **call)
        except AiokprodError as refused:
            account.refused = refused
            is_alone = accounts == len(self.books.accounts)  # no finalizer has sent meanwhile
            if is_alone and life.producer.health().buffered_bytes != charged:
                self.books.wrong("a refused record is charged", f"{step}")
        except Exception as bare:
            account.refused = bare
            self.books.wrong(f"bare {type(bare).__name__}", f"{step} raised {bare!r:.200}")
        finally:
            self.books.misused = -1

    def _life(self, args: dict[str, Any]) -> Life:
        return self.scene.lives[int(args.get("producer", 0)) % len(self.scene.lives)]
