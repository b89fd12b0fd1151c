"""`aiokprod cluster`: a development broker. A MockCluster on fixed ports, alone or around another command.

    aiokprod cluster --topic orders:6                 until SIGINT or SIGTERM
    aiokprod cluster --port 0 -- uvicorn app:app      as long as the command runs, and with its exit status

The records are in this process's memory and end with it. The cluster runs on a thread of its own; the main thread only waits
for a signal or for the command, so that signals are handled at once.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import uuid
from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager
from time import monotonic
from types import FrameType
from typing import Final

import click

from aiokprod.cli.common.help_names import HELP
from aiokprod.cli.common.parameter import ParameterType
from aiokprod.cli.common.statuses import BY_SIGNAL, DONE
from aiokprod.cli.common.topic_admin import ADVICE, DEVELOPMENT
from aiokprod.testing.mock import MockCluster
from aiokprod.testing.mock.cluster_state import RefusalError
from aiokprod.testing.mock.kafka_versions import NEWEST, RELEASES
from aiokprod.wire.codes import ErrorCode

HOST: Final = "127.0.0.1"
BOOTSTRAP_VARIABLE: Final = "AIOKPROD_BOOTSTRAP_SERVERS"
NOT_FOUND, NOT_EXECUTABLE = 127, 126  # exit statuses of shells
AT_ONCE_S: Final = 0.5
"""The same signal within this time is one: `timeout` signals the program it has started, and then its process group."""
SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


class Topic(ParameterType[tuple[str, int]]):
    """The parameter type `name` or `name:partitions`."""

    name = "name[:partitions]"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, int]:
        name, _, count = str(value).partition(":")
        if not name or not (count or "1").isdecimal():
            self.fail(f"{value!r} is not name:partitions", param, ctx)
        return name, int(count or 1)


class Waiter:
    """The wait of the main thread for a signal, or for the end of a command that gets the signals. One per process."""

    def __init__(self) -> None:
        self._stopped = threading.Event()
        self._number = int(signal.SIGTERM)
        self._child: subprocess.Popen[bytes] | None = None
        self._passed_on: dict[int, float] = {}  # when each signal was passed on last

    @contextmanager
    def installed(self) -> Generator[None]:
        """Handle the signals within this context."""
        before = {number: signal.signal(number, self._signalled) for number in SIGNALS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _signalled(self, number: int, _frame: FrameType | None) -> None:
        self._number = number
        self._stopped.set()
        now = monotonic()
        is_again = now - self._passed_on.get(number, -AT_ONCE_S) < AT_ONCE_S
        if self._child is not None and not is_again and not (number == signal.SIGINT and _is_at_terminal()):
            self._passed_on[number] = now
            self._child.send_signal(number)

    def until_signal(self) -> int:
        """Wait for a signal; return the exit status: a server that is told to end has done its work."""
        self._stopped.wait()
        return DONE

    def run(self, command: Sequence[str], environment: dict[str, str]) -> int:
        """Run the command to its end; return its exit status."""
        if self._stopped.is_set():
            return BY_SIGNAL + self._number
        try:
            self._child = subprocess.Popen(command, env=environment)  # noqa: S603 - the user's own command
        except FileNotFoundError:
            click.echo(f"aiokprod cluster: {command[0]}: no such command", err=True)
            return NOT_FOUND
        except OSError as error:
            click.echo(f"aiokprod cluster: {command[0]}: {error.strerror}", err=True)
            return NOT_EXECUTABLE
        if self._stopped.is_set():  # a signal came while the command was being started
            self._child.terminate()
        status = self._child.wait()
        return status if status >= 0 else BY_SIGNAL - status


def _is_at_terminal() -> bool:
    """Return True if Ctrl-C reaches the command by itself: a second SIGINT would count as a second Ctrl-C."""
    try:
        terminal = os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY)  # also where stdin is another file
    except (AttributeError, OSError):  # AttributeError: on Windows
        return False
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:
        return False
    finally:
        os.close(terminal)


def check_ports(ports: Sequence[int]) -> None:
    """Check that the ports are free.

    Raises:
        click.ClickException: a port is not free; the text says which.
    """
    for port in ports:
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((HOST, port))
                probe.listen(1)
            except OSError as error:
                raise _not_available(f"port {port}", error) from error


def _not_available(what: str, error: OSError) -> click.ClickException:
    return click.ClickException(
        f"{what} of {HOST} is not available: {os.strerror(error.errno or 0)}."
        " Choose others with --port, or --port 0 for any that are free."
    )


def ports_of(brokers: int, port: int) -> list[int] | None:
    """Return consecutive ports from `port` on; None for any free ones."""
    return list(range(port, port + brokers)) if port else None


def cluster_id_of(port: int) -> str:
    """Return an id that is the same for each start on a port; for port 0 another one at each start.

    With another id, running producers would take a restarted cluster for a different one.
    """
    return f"{DEVELOPMENT}{port}" if port else f"{DEVELOPMENT}{uuid.uuid4().hex[:8]}"


def start_line(cluster: MockCluster) -> str:
    """Return the line that programs which wait for the cluster look for."""
    count = len(cluster.broker_ids)
    return f"{count} {'broker' if count == 1 else 'brokers'}, bootstrap.servers={cluster.bootstrap_servers}"


@click.command(context_settings={**HELP, "allow_interspersed_args": False})
@click.option(
    "--brokers", metavar="N", type=click.IntRange(1, 100), default=3, show_default=True, help="Number of brokers."
)
@click.option(
    "--port",
    metavar="N",
    type=click.IntRange(0, 65_535),
    default=9092,
    show_default=True,
    help="Port of the first broker; 0: any free ports.",
)
@click.option("--topic", "topics", type=Topic(), multiple=True, help="Topic to create at the start (repeatable).")
@click.option("--no-auto-create", is_flag=True, help="Refuse unknown topics instead of creating them.")
@click.option(
    "--kafka-version",
    type=click.Choice(list(RELEASES)),
    default=NEWEST,
    show_default=True,
    help="Kafka release to behave like.",
)
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
def cluster(
    brokers: int,
    port: int,
    topics: Sequence[tuple[str, int]],
    no_auto_create: bool,
    kafka_version: str,
    command: Sequence[str],
) -> None:
    """Run a Kafka cluster for development in this process, until SIGINT or SIGTERM.

    With a COMMAND (after --) the cluster runs as long as the command. The command finds the cluster in
    AIOKPROD_BOOTSTRAP_SERVERS, gets the signals, and its exit status is that of this program.

    Records are kept in memory and end with the program. Not for production or for measuring throughput.
    """
    ports = ports_of(brokers, port)
    if ports is not None and ports[-1] > 65_535:
        raise click.UsageError(f"{brokers} brokers from port {port} on need port {ports[-1]}, which does not exist")
    check_ports(ports or ())
    waiter = Waiter()
    made = MockCluster(
        brokers,
        ports=ports,
        auto_create_topics=not no_auto_create,
        kafka_version=kafka_version,
        cluster_id=cluster_id_of(port),
    )
    with waiter.installed(), ExitStack() as stack:
        try:
            running = stack.enter_context(made)
        except OSError as error:  # a port was taken since it was looked at
            raise _not_available("one of the ports", error) from error
        for name, partitions in topics:
            try:
                running.create_topic(name, partitions)
            except RefusalError as refusal:
                advice = f". {ADVICE[refusal.code]}" if refusal.code == ErrorCode.INVALID_TOPIC_EXCEPTION else ""
                raise click.ClickException(
                    f"topic {name!r} cannot be created: {(refusal.message or str(refusal.code)).rstrip('.')}{advice}"
                ) from refusal
        click.echo(start_line(running), err=bool(command))
        if command:
            status = waiter.run(command, os.environ | {BOOTSTRAP_VARIABLE: running.bootstrap_servers})
        else:
            click.echo("Records are kept in memory. Ctrl-C (SIGINT) or SIGTERM ends it.")
            status = waiter.until_signal()
    sys.exit(status)
