"""`aiokprod doctor`: goes through a set-up as a client does, and says for each thing that is wrong the one line to change."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Mapping, Sequence

import click

from aiokprod.cli.common.connection import Connection, connection_options
from aiokprod.cli.common.help_names import HELP
from aiokprod.cli.common.parameter import Text
from aiokprod.cli.common.printing import print_json, styled
from aiokprod.cli.common.running import line_of, run
from aiokprod.cli.common.statuses import DONE, NOT_GOOD
from aiokprod.cli.common.texts import printable
from aiokprod.cli.common.topic_admin import TopicAdmin
from aiokprod.cli.doctoring.brokers import of_brokers
from aiokprod.cli.doctoring.finding import NOT_HERE, Finding, fine
from aiokprod.cli.doctoring.servers import Examination, ServerExaminer
from aiokprod.cli.doctoring.settings import of_error, of_problem, of_variables
from aiokprod.cli.doctoring.topics import of_identity, of_record, of_topic
from aiokprod.cluster.dialing.connection_settings import ConnectionSettings
from aiokprod.cluster.hosts import address_of
from aiokprod.config import ProducerConfig
from aiokprod.config.command_line import problems_of
from aiokprod.errors import AiokprodError, ConfigError, ConnectionLostError, RequestTimeoutError
from aiokprod.records.compression import check_codec


@click.command(context_settings=HELP)
@click.argument("topics", nargs=-1, type=Text(), metavar="[TOPIC]...")
@click.option("--send", is_flag=True, help="Also send an empty record, with a header aiokprod-doctor, to each TOPIC.")
@click.option("-j", "--json", "as_json", is_flag=True, help="One JSON object per result.")
@connection_options
def doctor(topics: Sequence[str], send: bool, as_json: bool, connection: Connection) -> None:
    """Find out why a connection or a topic does not work.

    Looks at options and variables, names, ports, TLS, SASL, the versions and the advertised addresses of the brokers; and at
    each TOPIC: rights, leaders, replicas, sizes. Only --send writes anything. What is wrong is told with the one line to
    change: an option, a line of a broker's configuration, or a command.

    \b
    Examples:
      aiokprod doctor -b kafka.example:9092
      aiokprod doctor orders --send --config client.properties

    Exit status: 0 nothing is wrong; 1 something is.
    """
    if send and not topics:
        raise click.UsageError("--send needs a TOPIC")

    async def work() -> int:
        is_bad = False
        async for finding in examined(connection, topics, send, os.environ):
            is_bad = is_bad or finding.is_trouble
            _print(finding, as_json)
        return NOT_GOOD if is_bad else DONE

    run(work)


def _print(finding: Finding, as_json: bool) -> None:
    what, change = printable(finding.what, 2_000), printable(finding.change, 2_000)
    if as_json:
        state = "wrong" if finding.is_trouble else "note" if finding.change else "good"
        print_json({"finding": finding.name, "state": state, "what": what, "change": finding.change})
    elif finding.is_trouble:
        click.echo(f"{styled('wrong', fg='red', bold=True)}  {finding.name}: {what}")
        click.echo(f"       change: {styled(change, bold=True)}")
    elif finding.change:
        click.echo(f"{styled('note', fg='yellow')}   {finding.name}: {what}")
        click.echo(f"       change: {change}")
    else:
        click.echo(f"{styled('good', fg='green')}   {finding.name}: {what}")


async def examined(
    connection: Connection, topics: Sequence[str], sends: bool, environ: Mapping[str, str]
) -> AsyncGenerator[Finding]:
    """Yield the results, from the outside in; what cannot work any more is not looked at."""
    for finding in of_variables(environ):
        yield finding
    problems = problems_of(connection.settings())
    for problem in problems:
        yield of_problem(problem)
    if problems:
        return
    try:
        config = connection.config()
        ConnectionSettings.from_config(config)
        check_codec(config.compression_type)
    except ConfigError as error:
        yield of_error(error)
        return
    yield fine("options", "the options fit together")
    examiner = ServerExaminer(config, connection.timeout_s)
    answers: dict[tuple[str, int], Examination] = {}
    for address in config.bootstrap_addresses:
        answers[address] = await examiner.examine(*address)
        for finding in answers[address].findings:
            yield finding
    reached = {address: each.reached for address, each in answers.items() if each.reached is not None}
    for each in reached.values():
        each.connection.close(ConnectionLostError("the examination is over"))
        await each.connection.wait_closed()
    if not reached:
        return
    names = {each.cluster.cluster_id for each in reached.values()}
    cluster = next(iter(reached.values())).cluster
    if len(names) > 1:
        yield Finding(
            "two-clusters",
            f"the bootstrap servers belong to different clusters: {', '.join(sorted(map(str, names)))}",
            f"bootstrap.servers={address_of(*next(iter(reached)))}  (servers of one cluster)",
        )
        return
    yield fine("servers", f"{len(reached)} of {len(answers)} bootstrap servers answer; cluster {cluster.cluster_id}")
    is_reachable = True
    for finding in await of_brokers(examiner, cluster, list(reached)):
        is_reachable = is_reachable and not finding.is_trouble
        yield finding
    if not is_reachable:
        return
    try:
        async for finding in _of_topics(config, topics, sends, connection.timeout_s):
            yield finding
    except AiokprodError as error:
        yield Finding("cluster", line_of(error), _change_of(error, connection.timeout_s))


def _change_of(error: AiokprodError, timeout_s: float) -> str:
    if isinstance(error, RequestTimeoutError):
        return f"--timeout {4 * timeout_s:g}  (if the brokers are only slow; else {NOT_HERE}, and their logs say why)"
    return f"{NOT_HERE}: restart the broker that is named, if it stays so; its log says why it did not answer"


async def _of_topics(
    config: ProducerConfig, topics: Sequence[str], sends: bool, timeout_s: float
) -> AsyncGenerator[Finding]:
    async with TopicAdmin(config, timeout_s) as admin:
        for finding in await of_identity(admin):
            yield finding
        for topic in dict.fromkeys(topics):
            is_bad = False
            for finding in await of_topic(admin, topic):
                is_bad = is_bad or finding.is_trouble
                yield finding
            if sends and not is_bad:
                for finding in await of_record(config, topic, timeout_s):
                    yield finding
