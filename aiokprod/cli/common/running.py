"""Running a command: one event loop, signals, errors in one line, the exit status.

The first Ctrl-C (or SIGTERM) cancels the command's work, which finishes what it has begun, tells what it has done and ends. The
second cancels that too; the third ends the process at once. A reader of our output that ends (`aiokprod read | head`) ends the
command without a word.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import signal
import sys
from collections.abc import Callable, Coroutine, Mapping
from typing import IO, Any, Final, NoReturn

import click

from aiokprod.cli.common.log_lines import log_lines
from aiokprod.cli.common.statuses import BY_SIGNAL, DONE, NOT_DONE
from aiokprod.cli.common.texts import printable
from aiokprod.errors import (
    TRY_LATER,
    AiokprodError,
    AuthenticationError,
    BootstrapError,
    ClusterAuthorizationError,
    ClusterError,
    CodecUnavailableError,
    ConnectionLostError,
    DeliveryTimeoutError,
    InvalidPartitionError,
    InvalidTopicError,
    PartitionOutOfRangeError,
    ProducerFailedError,
    RequestTimeoutError,
    TlsError,
    TopicAuthorizationError,
    UnknownTopicError,
    UsageError,
)
from aiokprod.wire.codes import ErrorCode

LONGEST_LINE: Final = 2_000
SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)
LAST: Final = 2
ASK: Final = " (aiokprod doctor finds out more)"
OF_CAUSES: Final = (ProducerFailedError, UnknownTopicError)
"""errors of records that pass on what happened to the producer"""
RIGHTS: Final = (ClusterAuthorizationError, TopicAuthorizationError)
UNREACHED: Final = (BootstrapError, TlsError, AuthenticationError)
PIPE: Final = 13  # SIGPIPE, which Windows does not have


NAME_RULE: Final = "1 to 249 of the characters a-z A-Z 0-9 . _ - and not '.' or '..'"
"""of topics; some errors say it themselves"""
BUSY: Final = "Check how busy the broker is, or raise --timeout."
ADVICE: Final[Mapping[type[AiokprodError], str]] = {
    BootstrapError: (
        "Check -b (bootstrap.servers), the network and the brokers' advertised.listeners. -X start.timeout.ms=20000 waits"
        " longer."
    ),
    ClusterAuthorizationError: (
        "Grant this principal WRITE on the topic (brokers before 2.8: also IDEMPOTENT_WRITE on the cluster), or set"
        " enable.idempotence=false."
    ),
    CodecUnavailableError: "",  # the error has the line of pip
    ConnectionLostError: "Check the broker and the network.",
    DeliveryTimeoutError: "Check how busy the brokers are, or raise delivery.timeout.ms (-X).",
    InvalidPartitionError: "`aiokprod topics describe TOPIC` shows the partitions.",
    InvalidTopicError: f"A name is {NAME_RULE}.",
    PartitionOutOfRangeError: "`aiokprod topics describe TOPIC` shows the partitions.",
    RequestTimeoutError: BUSY,
    TlsError: "Check security.protocol, the certificate authorities (ssl.cafile) and the host name.",
    UnknownTopicError: "`aiokprod topics list` shows the topics, `aiokprod topics create` makes one.",
    UsageError: "",
}
"""what to do, where the advice of the error itself speaks of a program"""


def advice_of(error: AiokprodError) -> str:
    """Return what a person at the command line can do about an error; an advice of this one error stays."""
    kind, cause = type(error), error.__cause__
    if isinstance(cause, RIGHTS) or (kind in OF_CAUSES and isinstance(cause, ClusterError)):
        return advice_of(cause)
    if kind is UnknownTopicError and error.code not in (None, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
        return f"A name is {NAME_RULE}." if error.code == ErrorCode.INVALID_TOPIC_EXCEPTION else TRY_LATER
    if isinstance(error, InvalidTopicError) and NAME_RULE in error.message:
        return ""
    if isinstance(error, RequestTimeoutError) and not _has_timeout():
        return "Check how busy the broker is."
    if kind not in ADVICE or not error.advice.endswith(kind.advice):
        return error.advice
    return error.advice.removesuffix(kind.advice) + ADVICE[kind]  # in front of it: what to do about the last failure


def line_of(error: BaseException) -> str:
    """Return what happened and what to do, in one line that does not steer a terminal."""
    said = error.message if isinstance(error, AiokprodError) else str(error)
    text = said.strip().partition("\n")[0].rstrip(".") or type(error).__name__
    if isinstance(error, OSError) and not isinstance(error, AiokprodError):
        place = "standard output" if error.filename is None and error.errno == errno.ENOSPC else error.filename
        place = "''" if place == "" else place  # as of a variable of the shell that is not set
        text = f"{place}: {error.strerror}" if place else str(error.strerror or error)
    advice = advice_of(error) if isinstance(error, AiokprodError) else ""
    return printable(f"{text}. {advice}" if advice else text, LONGEST_LINE)


def not_text(error: UnicodeEncodeError) -> str:
    """Return the line about a text that has bytes which are not UTF-8: Python keeps them as half a character each."""
    return f"{printable(repr(error.object))} is not UTF-8"


def tell(text: str) -> None:
    """Write a line to standard error, after the name of the command; nothing of it steers a terminal.

    If standard error takes nothing, the exit status still says how the command ended.
    """
    context = click.get_current_context(silent=True)
    path = context.command_path if context is not None else ""
    name = path if path.partition(" ")[0] == "aiokprod" else f"aiokprod {path}".strip()
    try:
        click.echo(f"{name}: {printable(text, 2 * LONGEST_LINE)}", err=True)
    except OSError:
        drop(sys.stderr)


def run(work: Callable[[], Coroutine[Any, Any, int]]) -> NoReturn:
    """Run the work of a command to its end, and end the process with its exit status.

    Args:
        work: returns the exit status; an AiokprodError or OSError of it, or a text that is not UTF-8, is told in one line,
            with status 2.
    """
    sys.exit(status_of(work))


def status_of(work: Callable[[], Coroutine[Any, Any, int]]) -> int:
    """Run the work; return the exit status."""
    caught: list[int] = []
    try:
        with log_lines(tell) as warnings:
            status = asyncio.run(_with_signals(work, caught))
            if status == DONE:
                warnings.forget_held()
        sys.stdout.flush()
    except BrokenPipeError:
        drop(sys.stdout)
        return BY_SIGNAL + PIPE
    except (asyncio.CancelledError, KeyboardInterrupt):
        return BY_SIGNAL + (caught[0] if caught else signal.SIGINT)
    except UnicodeEncodeError as error:  # an argument that is used where Kafka takes text only
        tell(not_text(error))
        return NOT_DONE
    except (AiokprodError, OSError) as error:
        tell(line_of(error) + (ASK if isinstance(error, UNREACHED) and not _is_doctor() else ""))
        return NOT_DONE
    finally:
        try:
            sys.stdout.flush()
        except (OSError, ValueError):  # told above
            drop(sys.stdout)
    return status


def _has_timeout() -> bool:
    context = click.get_current_context(silent=True)
    return context is None or any(each.name == "timeout" for each in context.command.params)


def _is_doctor() -> bool:
    context = click.get_current_context(silent=True)
    return context is not None and context.info_name == "doctor"


async def _with_signals(work: Callable[[], Coroutine[Any, Any, int]], caught: list[int]) -> int:
    task = asyncio.ensure_future(work())
    loop = asyncio.get_running_loop()

    def signalled(number: int) -> None:
        if len(caught) == LAST:
            os._exit(BY_SIGNAL + number)
        caught.append(number)
        task.cancel()

    handled: list[int] = []
    for number in map(int, SIGNALS):
        # Not on Windows, and not on a thread; there Ctrl-C is a KeyboardInterrupt of asyncio.run.
        with contextlib.suppress(NotImplementedError, RuntimeError, ValueError):
            loop.add_signal_handler(number, signalled, number)
            handled.append(number)
    try:
        status = await task
    finally:
        for number in handled:
            loop.remove_signal_handler(number)
    if caught:
        raise asyncio.CancelledError
    return status


def drop(stream: IO[str]) -> None:
    """Send what is left of an output that takes nothing to nowhere: Python would complain at its end, with status 120."""
    with contextlib.suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)
