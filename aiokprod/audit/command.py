"""The audit as a command: `python -m aiokprod.audit`, and `aiokprod audit`.

    python -m aiokprod.audit claims/ --log log/ --out audit/
    python -m aiokprod.audit claims/ --bootstrap localhost:9092 --topic orders --out audit/

Exit status: 0 clean, 1 something is wrong, 2 the audit could not be made, or not completely, 130 after Ctrl-C.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
import tempfile
import threading
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn, Self, cast

from aiokprod.audit.files import check, write
from aiokprod.audit.run import run
from aiokprod.audit.sides import SchemaError
from aiokprod.audit.verdict import NOT_JUDGED, Verdict
from aiokprod.claims.readback import read_back
from aiokprod.config.command_line import config_of, given_options
from aiokprod.errors import AiokprodError

if TYPE_CHECKING:
    from types import FrameType

    from pyspark import SparkContext
    from pyspark.sql import DataFrame, SparkSession

CANCEL_EVERY_S: Final = 0.1
INTERRUPTED: Final = 128 + signal.SIGINT
PROGRAM: Final = "python -m aiokprod.audit"


def run_alone() -> NoReturn:
    """Run the command, and end the process with its exit status."""
    status: int | str | None
    try:
        try:
            status = main()
        except SystemExit as ended:  # of the parser, which does not say whether its line was written
            status = ended.code
        sys.stdout.flush()
        sys.stderr.flush()
    except OSError as error:
        with suppress(OSError):  # it may be standard error that takes nothing
            print(f"{PROGRAM}: standard output: {error.strerror}", file=sys.stderr)
        os._exit(NOT_JUDGED)  # Python would write it once more
    sys.exit(status)


def main(arguments: Sequence[str] | None = None, program: str = PROGRAM) -> int:
    """Run the command; return the exit status.

    Raises:
        OSError: standard output takes nothing.
    """
    parser = parser_of(program)
    options = parser.parse_args(arguments)
    is_read_back = not options.log
    if is_read_back != bool(options.topic) or (
        not is_read_back and (options.kafka_source or _is_cluster_given(options))
    ):
        parser.error(
            "the log is either --log FOLDER, or --bootstrap (or --config, -X) together with --topic; --kafka-source needs the"
            " second"
        )
    if is_read_back and not _is_cluster_given(options):
        parser.error("one of --log and --bootstrap (or --config) is needed")
    try:
        import_module("pyspark")
    except ImportError as missing:
        return _not_judged(program, f'the audit needs Spark ({missing}): pip install "aiokprod[audit]"')
    try:
        if options.out:
            check(options.out)  # before the minutes of an audit
        verdict = _audited(options)
        unwritten = _why_unwritten(verdict, options.out) if options.out else ""
    except KeyboardInterrupt:
        _not_judged(program, "interrupted")
        return INTERRUPTED
    except Exception as error:  # any error: a traceback would exit with 1, which means that a record is wrong
        return _not_judged(program, _in_one_line(error))
    print(verdict.line)
    if options.out and not unwritten:
        print(f"{options.out / 'index.html'}")
    sys.stdout.flush()
    if unwritten:
        print(f"{program}: {unwritten}", file=sys.stderr)
        return verdict.exit_status or NOT_JUDGED
    return verdict.exit_status


def _why_unwritten(verdict: Verdict, folder: Path) -> str:
    """Write the folder; return why that is not done. The verdict, which took minutes, is told nevertheless."""
    try:
        write(verdict, folder)
    except Exception as error:
        return f"--out is not complete: {_in_one_line(error)}"
    return ""


def _not_judged(program: str, why: str) -> int:
    print(f"{program}: not judged: {why}", file=sys.stderr)
    return NOT_JUDGED


def _in_one_line(error: Exception) -> str:
    from pyspark.errors import PySparkException

    while isinstance(error, ExceptionGroup):
        error = cast("ExceptionGroup[Exception]", error).exceptions[0]
    text = str(error).strip().partition("\n")[0]
    says_all = isinstance(error, AiokprodError | PySparkException | SchemaError | OSError) and text
    return text if says_all else f"{type(error).__name__}: {text}"


class Parser(argparse.ArgumentParser):
    """A parser that says what is wrong in one line, and which options it has."""

    @property
    def actions(self) -> list[argparse.Action]:
        """All arguments and options, --help too."""
        return list(self._actions)

    def print_help(self, file: Any = None) -> None:
        """Write the help at once, so that it is known whether it was written: argparse does not say."""
        print(self.format_help(), end="", file=file, flush=True)

    def error(self, message: str) -> NoReturn:
        """End with one line, as all commands do."""
        end = "" if message.endswith("?") else "."
        self.exit(NOT_JUDGED, f"{self.prog}: {message}{end} See: {self.prog} --help\n")


def _text(text: str) -> str:
    """Return a text that is not empty. An option without a text would be taken for one that is not given."""
    if not text:
        raise argparse.ArgumentTypeError("it is empty: is a variable of the shell not set?")
    return text


def _folder(name: str) -> Path:
    """Return the path of a folder. An empty name would be this folder."""
    return Path(_text(name))


class _Formatter(argparse.HelpFormatter):
    def add_usage(
        self,
        usage: str | None,
        actions: Iterable[argparse.Action],
        groups: Iterable[Any],
        prefix: str | None = None,
    ) -> None:
        """Begin as the help of all commands does."""
        super().add_usage(usage, actions, groups, prefix or "Usage: ")


def parser_of(program: str) -> Parser:
    """Return the parser of the command line; a shell's completion asks it for the options."""
    parser = Parser(
        program,
        formatter_class=_Formatter,
        description="Compare what a producer claimed (aiokprod.claims) with what is in the log.",
        epilog="Exit status: 0 clean, 1 something is wrong, 2 the audit could not be made, or not completely.",
    )
    parser.add_argument("claims", type=_text, metavar="CLAIMS", help="folder that Claims wrote")
    parser.add_argument(
        "--log", type=_text, metavar="FOLDER", help="a Parquet dump with the columns of Spark's Kafka source"
    )
    parser.add_argument(
        "-b",
        "--bootstrap",
        type=_text,
        metavar="HOST:PORT,...",
        help="instead of --log: read the topics back from this cluster",
    )
    parser.add_argument(
        "--config", type=_text, metavar="FILE", help="the same, with options from a file: lines of name=value"
    )
    parser.add_argument(
        "-X",
        dest="pairs",
        type=_text,
        metavar="NAME=VALUE",
        action="append",
        default=[],
        help="set an option of the connection",
    )
    parser.add_argument(
        "--topic", type=_text, metavar="TOPIC", action="append", default=[], help="with --bootstrap; may be repeated"
    )
    parser.add_argument(
        "--kafka-source",
        action="store_true",
        help="read with Spark's own Kafka source, whose jar must be installed",
    )
    parser.add_argument(
        "--dump",
        metavar="FOLDER",
        type=_folder,
        help="with --bootstrap: keep what was read back in this folder, which must be empty",
    )
    parser.add_argument(
        "--out",
        metavar="FOLDER",
        type=_folder,
        help="write summary.json, findings, latencies and a page into this folder",
    )
    parser.add_argument("--no-order", action="store_true", help="do not judge order (saves a shuffle)")
    parser.add_argument("--run", metavar="N", type=int, action="append", help="judge this run only; may be repeated")
    parser.add_argument(
        "--partitions", metavar="N", type=int, help="partitions of the shuffle; default: one per million claims"
    )
    parser.add_argument(
        "--master", type=_text, metavar="URL", help="master of Spark, if the session's configuration has none"
    )
    return parser


def _audited(options: argparse.Namespace) -> Verdict:
    for folder in (options.claims, options.log):
        # Checked before Spark starts, which takes seconds. Patterns and other file systems are left to Spark.
        if folder and not set(folder) & set(":*?[{") and not Path(folder).exists():
            raise FileNotFoundError(f"{folder} does not exist")
    with tempfile.TemporaryDirectory() as scratch:
        log = options.log
        given = given_options(options.bootstrap, options.config, options.pairs) if options.topic else {}
        if given and not options.kafka_source:
            log = options.dump or Path(scratch)
            asyncio.run(read_back(config_of(given), options.topic, log))
        with _session(options.master) as spark:
            found = _kafka_source(spark, given, options.topic) if options.kafka_source else log
            return run(
                spark,
                options.claims,
                found,
                order=not options.no_order,
                runs=options.run,
                partitions=options.partitions,
            )


@contextmanager
def _session(master: str | None) -> Generator[SparkSession]:
    """Use the active session, or make one that ends with the audit."""
    from pyspark.sql import SparkSession

    active = SparkSession.getActiveSession()
    if active is not None:
        yield active
        return
    builder = SparkSession.builder.appName("aiokprod-audit").config("spark.ui.showConsoleProgress", "false")
    with _Interrupts() as interrupts:
        try:
            spark = (builder.master(master) if master else builder).getOrCreate()
            interrupts.cancel_jobs_of(spark)
            yield spark
        finally:
            interrupts.leave_jobs()
            made = SparkSession.getActiveSession()
            if made is not None:
                made.stop()


class _Interrupts:
    """The effects of Ctrl-C while Spark works.

    A KeyboardInterrupt in the middle of a call breaks what Python and Spark's JVM say to each other: both print tracebacks, and
    a JVM that was just starting runs on for ever. So the first Ctrl-C lets Spark start, cancels its jobs from another thread,
    and is raised at the end. The second one is raised at once, as soon as there is a JVM. A handler that the program has set
    stays.
    """

    def __init__(self) -> None:
        self._count = 0
        self._is_set = False
        self._context: SparkContext | None = None
        self._is_over = threading.Event()
        self._canceller = threading.Thread(target=self._cancel, daemon=True)

    def __enter__(self) -> Self:
        is_main = threading.current_thread() is threading.main_thread()
        self._is_set = is_main and signal.getsignal(signal.SIGINT) is signal.default_int_handler
        if self._is_set:
            signal.signal(signal.SIGINT, self._interrupted)
        return self

    def __exit__(self, *_: object) -> None:
        if self._is_set:
            signal.signal(signal.SIGINT, signal.default_int_handler)
            if self._count:
                raise KeyboardInterrupt

    def cancel_jobs_of(self, spark: SparkSession) -> None:
        """Cancel the jobs of this session from the first Ctrl-C on.

        Raises:
            KeyboardInterrupt: there was one while it started.
        """
        if not self._is_set:
            return
        if self._count:
            raise KeyboardInterrupt
        try:
            self._context = spark.sparkContext
        except AttributeError:  # Spark Connect
            signal.signal(signal.SIGINT, signal.default_int_handler)
        else:
            signal.signal(signal.SIGINT, self._interrupted)  # Spark has set its own

    def leave_jobs(self) -> None:
        """Cancel nothing from here on."""
        self._context = None
        self._is_over.set()
        if self._canceller.is_alive():
            self._canceller.join()

    def _interrupted(self, _number: int, _frame: FrameType | None) -> None:
        self._count += 1
        if self._count > 1 and _has_jvm():
            raise KeyboardInterrupt
        if self._count == 1 and self._context is not None:
            self._canceller.start()

    def _cancel(self) -> None:
        context = self._context
        if context is not None:
            context.setLogLevel("OFF")  # tasks that are cancelled write stack traces
        while context is not None and not self._is_over.is_set():
            context.cancelAllJobs()
            self._is_over.wait(CANCEL_EVERY_S)  # and again: the next job may not have begun yet


def _has_jvm() -> bool:
    from pyspark import SparkContext

    return getattr(SparkContext, "_gateway", None) is not None


def _is_cluster_given(options: argparse.Namespace) -> bool:
    return bool(options.bootstrap or options.config or options.pairs)


def _kafka_source(spark: SparkSession, given: Mapping[str, str], topics: Sequence[str]) -> DataFrame:
    """Return everything that is in the topics now, without records of aborted transactions."""
    return (
        spark.read.format("kafka")
        .options(**{f"kafka.{name}": value for name, value in given.items()})
        .option("subscribe", ",".join(topics))
        .option("includeHeaders", "true")
        .option("startingOffsets", "earliest")
        .option("endingOffsets", "latest")
        .option("kafka.isolation.level", "read_committed")
        .load()
    )
