"""Faults of a task in the middle of its rows, most of them once: a function for a column that a sink then writes.

Each is made by a function, so that Spark pickles it whole: the workers do not find the tests' modules. `flag` is a file
that says it has happened, as attempts run in other processes.

With `sent` (servers, topic) a mishap waits until a reader of uncommitted records has seen the first row of its attempt. Then
rows have to be long, and Arrow batches small (`LONG_ROWS`, `SMALL_BATCHES`): each process keeps up to 64 KiB back.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from pyspark.sql.datasource import DataSourceArrowWriter
from pyspark.sql.functions import udf

from aiokprod.errors import AiokprodError
from aiokprod.spark.source import AiokprodSource

AFTER_ROWS = 1000
LONG_ROWS = 500  # characters
ROWS_OF_A_ZOMBIE = 100
SMALL_BATCHES = {"spark.sql.execution.arrow.maxRecordsPerBatch": "100"}
Sent = tuple[str, str] | None


def long_row(number: int) -> str:
    return f"{number:0{LONG_ROWS}d}"


def attempt_waits(folder: Path) -> Any:
    """Return a mishap: each attempt of the first task says that it is here, in a file named by its number, which has the stage.

    It goes on when the file `<number>.go` is there.
    """
    path, after, rows = str(folder), AFTER_ROWS, [0]

    def passing(value: str) -> str:
        rows[0] += 1
        if rows[0] == after:
            wait()
        return value

    def wait() -> None:
        import time
        from pathlib import Path

        from pyspark import TaskContext

        context = TaskContext.get()
        if context is None or context.partitionId():
            return
        here = Path(path) / str(context.attemptNumber())
        here.with_suffix(".new").write_text(str(context.stageId()))
        here.with_suffix(".new").rename(here)
        while not here.with_suffix(".go").exists():
            time.sleep(0.01)

    return udf(passing, "string", useArrow=False)


def _reader() -> Callable[[str, str, str], Callable[[], None]]:
    """Return the function that makes a wait for a row which is sent later. A nested one, as workers do not have this module."""

    def reader_of(row: str, servers: str, topic: str) -> Callable[[], None]:
        from confluent_kafka import Consumer, TopicPartition

        settings = {"bootstrap.servers": servers, "group.id": "mishap", "isolation.level": "read_uncommitted"}
        consumer = Consumer(settings | {"enable.auto.commit": False})
        places = [
            TopicPartition(topic, each) for each in consumer.list_topics(topic, timeout=30).topics[topic].partitions
        ]
        for each in places:
            each.offset = consumer.get_watermark_offsets(each, timeout=30)[1]
        consumer.assign(places)

        def wait() -> None:
            import time

            until = time.monotonic() + 60
            while time.monotonic() < until:
                message = consumer.poll(1)
                if message is not None and message.error() is None and (message.value() or b"").decode() == row:
                    consumer.close()
                    return
            raise AssertionError("this attempt has sent nothing")

        return wait

    return reader_of


def _once(flag: Path, happen: Callable[[], None], sent: Sent = None) -> Any:
    path, after, rows = str(flag), AFTER_ROWS, [0]
    reader_of = _reader()
    waits: list[Callable[[], None]] = []

    def passing(value: str) -> str:
        rows[0] += 1
        if rows[0] == 1 and sent is not None and not Path(path).exists():
            waits.append(reader_of(value, *sent))
        if rows[0] >= after and not Path(path).exists():
            for wait in waits:
                wait()
            with suppress(FileExistsError):  # another task was first
                Path(path).touch(exist_ok=False)
                happen()
        return value

    return udf(passing, "string", useArrow=False)  # with Arrow it needs pandas


def task_fails(flag: Path, sent: Sent = None) -> Any:
    """Return a mishap: the task raises."""

    def happen() -> None:
        raise ValueError("the rows of this attempt end here")

    return _once(flag, happen, sent=sent)


def each_attempt_fails(folder: Path, sent: tuple[str, str]) -> Any:
    """Return a mishap: each attempt of the second task raises, when it has sent rows.

    It says so before, in a file named by its number. The last one (3) raises when the file `go` is there.
    """
    path, after, rows = str(folder), AFTER_ROWS, [0]
    reader_of = _reader()
    waits: list[Callable[[], None]] = []

    def passing(value: str) -> str:
        from pathlib import Path

        from pyspark import TaskContext

        context = TaskContext.get()
        if context is None or context.partitionId() != 1:
            return value
        rows[0] += 1
        if rows[0] == 1:
            waits.append(reader_of(value, *sent))
        if rows[0] == after:
            waits[0]()
            (Path(path) / str(context.attemptNumber())).touch()
            if context.attemptNumber() == 3:
                appears(Path(path) / "go")
            raise ValueError("the rows end here")
        return value

    def appears(path: Path) -> None:
        import time

        until = time.monotonic() + 120
        while not path.exists():
            if time.monotonic() > until:
                raise AssertionError(f"there is no {path.name}")
            time.sleep(0.01)

    return udf(passing, "string", useArrow=False)


def other_workers_die(folder: Path, sent: tuple[str, str]) -> Any:
    """Return a mishap: an attempt kills every other Python worker of its executor, in the middle of another attempt.

    Attempts run at the same time, so the executor has two cores or more. Files: `<partition>.<attempt>` of each attempt when it
    has sent rows, with the process id of its worker; `killer`, with the name of one of those; `killed`, with the process ids of
    all that were killed. Until it is there attempts do not go on: so a worker that is killed is in the middle of its task.
    """
    path, after, rows = str(folder), AFTER_ROWS, [0]
    reader_of = _reader()
    waits: list[Callable[[], None]] = []

    def passing(value: str) -> str:
        rows[0] += 1
        if rows[0] in (1, after):
            import os
            from pathlib import Path

            from pyspark import TaskContext

            context = TaskContext.get()
            if context is None or (Path(path) / "killed").exists():
                return value
            if rows[0] == 1:
                waits.append(reader_of(value, *sent))
            elif waits:
                waits[0]()
                meet(f"{context.partitionId()}.{context.attemptNumber()}", str(os.getpid()))
        return value

    def meet(name: str, pid: str) -> None:
        import time
        from pathlib import Path

        folder = Path(path)
        (folder / f"{name}.new").write_text(pid)
        (folder / f"{name}.new").rename(folder / name)
        is_killer = False
        with suppress(FileExistsError):
            with (folder / "killer").open("x") as file:
                file.write(name)
            is_killer = True
        until = time.monotonic() + 120
        while not (folder / "killed").exists():
            if time.monotonic() > until:
                raise AssertionError("no other attempt has come so far")
            if is_killer and any(each.read_text() != pid for each in folder.glob("*.[0-9]")):
                kill()
            time.sleep(0.01)

    def kill() -> None:
        import os
        import signal
        from pathlib import Path

        others = [pid for pid in workers() if pid != os.getpid()]
        for pid in others:
            os.kill(pid, signal.SIGKILL)
        (Path(path) / "killed.new").write_text(" ".join(map(str, others)))
        (Path(path) / "killed.new").rename(Path(path) / "killed")

    def workers() -> list[int]:
        import os
        from pathlib import Path

        status = Path(f"/proc/{os.getppid()}/status").read_text()
        jvm = next(line.split()[1] for line in status.splitlines() if line.startswith("PPid"))
        return [pid for daemon in children(jvm) for pid in children(str(daemon))]

    def children(pid: str) -> list[int]:
        from pathlib import Path

        found: list[int] = []
        for thread in Path(f"/proc/{pid}/task").iterdir():  # any of the JVM's starts a process
            with suppress(OSError):  # it has ended
                found += map(int, (thread / "children").read_text().split())
        return found

    return udf(passing, "string", useArrow=False)


def killed_attempts(folder: Path) -> set[tuple[int, int]]:
    """Return partition and number of each attempt that has sent rows and whose worker `other_workers_die` has killed."""
    killed = (folder / "killed").read_text().split()
    attempts = [each for each in folder.glob("*.[0-9]") if each.read_text() in killed]
    return {(int(partition), int(attempt)) for partition, attempt in (each.name.split(".") for each in attempts)}


def executor_dies(flag: Path) -> Any:
    """Return a mishap: the JVM of the executor is killed, and its workers with it."""

    def happen() -> None:
        import os
        import signal
        from pathlib import Path

        status = Path(f"/proc/{os.getppid()}/status").read_text()
        jvm = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("PPid"))
        os.kill(jvm, signal.SIGKILL)

    return _once(flag, happen)


def task_hangs(flag: Path, sent: Sent = None) -> Any:
    """Return a mishap: the first attempt stops until Spark kills it; a test that waits for it ends after minutes."""

    def happen() -> None:
        import threading

        threading.Event().wait(300)

    return _once(flag, happen, sent=sent)


def copy_loses(folder: Path, sent: tuple[str, str]) -> Any:
    """Return a mishap of the first task: its first attempt waits until a copy has sent rows; the copy hangs until it is killed.

    Files: `original` when the first attempt has sent rows, `copy` when the copy has.
    """
    path, after, rows = str(folder), AFTER_ROWS, [0]
    reader_of = _reader()
    waits: list[Callable[[], None]] = []

    def passing(value: str) -> str:
        from pathlib import Path

        rows[0] += 1
        if rows[0] not in (1, after):
            return value
        number = attempt()
        original, copy = Path(path) / "original", Path(path) / "copy"
        if rows[0] == 1 and number is not None:
            if number:
                appears(original)  # all that it sends before it waits is in the log
            waits.append(reader_of(value, *sent))
        elif number is not None:
            waits[0]()
            (copy if number else original).touch()
            if number:
                hang()
            appears(copy)
        return value

    def attempt() -> int | None:
        from pyspark import TaskContext

        context = TaskContext.get()
        return None if context is None or context.partitionId() else context.attemptNumber()

    def appears(path: Path) -> None:
        import time

        until = time.monotonic() + 120
        while not path.exists():
            if time.monotonic() > until:
                raise AssertionError(f"there is no {path.name}")
            time.sleep(0.01)

    def hang() -> None:
        import threading

        threading.Event().wait(300)

    return udf(passing, "string", useArrow=False)


def executor_dies_late(folder: Path) -> Any:
    """Return a mishap: the JVM of an executor is killed when it has another task, behind one that has ended.

    Executors have one core. Files: `<partition>.<attempt>` of each attempt that has passed some rows, with the process id of
    its executor; `died` with that of the one that is killed.
    """
    path, after, rows = str(folder), AFTER_ROWS, [0]

    def passing(value: str) -> str:
        rows[0] += 1
        if rows[0] == after:
            note()
        return value

    def note() -> None:
        import os
        import signal
        from pathlib import Path

        from pyspark import TaskContext

        context = TaskContext.get()
        if context is None:
            return
        status = Path(f"/proc/{os.getppid()}/status").read_text()
        jvm = next(line.split()[1] for line in status.splitlines() if line.startswith("PPid"))
        has_ended_one = any(each.read_text() == jvm for each in Path(path).glob("*.*"))
        here = Path(path) / f"{context.partitionId()}.{context.attemptNumber()}"
        here.write_text(jvm)
        died = Path(path) / "died"
        if has_ended_one:
            with suppress(FileExistsError):
                with died.open("x") as file:
                    file.write(jvm)
                os.kill(int(jvm), signal.SIGKILL)

    return udf(passing, "string", useArrow=False)


def zombie_sink(folder: Path, sent: tuple[str, str]) -> type[AiokprodSource]:
    """Return the sink as a data source named `zombie`: the first attempt of the first task outlives its executor, as a zombie.

    It writes rows of its own, `zombie_rows(phase)`, in place of Spark's, and goes on when the executor is dead. Files:

        zombie      process id of the executor, which it has killed when the rows `before` were in the log
        committed   everything of the batch is committed; the commit goes no further until there is `behind`
        behind      the rows `behind` are in the log, sent into the same transaction
        go          made by the test: it sends the rows `fenced`
        fenced      what that has raised
        again       the number of rows of `again`, which it has prepared in a new transaction, as an attempt that begins late
        failed      an error that is none of these
    """
    path, count, reader_of = str(folder), ROWS_OF_A_ZOMBIE, _reader()

    def tell(name: str, text: str = "") -> None:
        from pathlib import Path

        (Path(path) / f"{name}.new").write_text(text)
        (Path(path) / f"{name}.new").rename(Path(path) / name)

    def appears(name: str) -> None:
        import time
        from pathlib import Path

        until = time.monotonic() + 120
        while not (Path(path) / name).exists():
            if time.monotonic() > until:
                raise AssertionError(f"there is no {name}")
            time.sleep(0.01)

    def kill_executor() -> str:
        import os
        import signal
        from pathlib import Path

        status = Path(f"/proc/{os.getppid()}/status").read_text()
        jvm = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("PPid"))
        os.kill(jvm, signal.SIGKILL)
        return str(jvm)

    def rows(phase: str) -> Any:
        import pyarrow as pa

        return pa.record_batch({"value": [f"{phase}-{number}" for number in range(count)]})

    def going_on() -> Iterator[Any]:
        is_in_log = reader_of("before-0", *sent)
        yield rows("before")
        is_in_log()
        tell("zombie", kill_executor())
        appears("committed")
        is_in_log = reader_of("behind-0", *sent)
        yield rows("behind")
        is_in_log()
        tell("behind")
        appears("go")
        yield rows("fenced")

    def live_on(write: Callable[[Iterator[Any]], Any]) -> None:
        import os
        import signal
        import traceback

        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # the daemon ends its workers so when the executor has died
        try:
            try:
                write(going_on())
                tell("fenced", "nothing")
            except AiokprodError as error:
                tell("fenced", f"{type(error).__name__}: {error}")
            tell("again", str(write(iter([rows("again")])).rows))
        except BaseException:
            tell("failed", traceback.format_exc())
        finally:
            os._exit(0)

    class Writer(DataSourceArrowWriter):
        def __init__(self, sink: Any) -> None:
            self.sink = sink

        def write(self, iterator: Iterator[Any]) -> Any:
            from pyspark import TaskContext

            context = TaskContext.get()
            assert context is not None
            if context.partitionId() == 0 and context.attemptNumber() == 0:
                live_on(self.sink.write)
            if context.partitionId() == 0:
                appears("zombie")  # or this copy might win before
            return self.sink.write(iterator)

        def commit(self, messages: Any) -> None:
            from aiokprod.spark.exactly_once import requests

            def reached(step: str, _: str) -> None:
                if step == "after WriteDone":
                    tell("committed")
                    appears("behind")

            before, requests.reached = requests.reached, reached
            try:
                self.sink.commit(messages)
            finally:
                requests.reached = before

        def abort(self, messages: Any) -> None:
            self.sink.abort(messages)

    class Source(AiokprodSource):
        @classmethod
        def name(cls) -> str:
            return "zombie"

        def writer(self, schema: Any, overwrite: bool) -> Any:
            return Writer(AiokprodSource.writer(self, schema, overwrite))

    return Source


def zombie_rows(*phases: str) -> Counter[str]:
    """Return the rows of a zombie in these phases."""
    return Counter(f"{phase}-{number}" for phase in phases for number in range(ROWS_OF_A_ZOMBIE))
