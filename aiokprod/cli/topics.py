"""`aiokprod topics`: lists, creates, describes, alters and deletes topics.

What changes a cluster needs `--yes`, except on a development cluster (`aiokprod cluster`), which its cluster id tells.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import click

from aiokprod.cli.common.connection import Connection, connection_options
from aiokprod.cli.common.group import Group
from aiokprod.cli.common.parameter import Text
from aiokprod.cli.common.printing import print_json, print_table
from aiokprod.cli.common.running import run, tell
from aiokprod.cli.common.statuses import DONE, NOT_DONE
from aiokprod.cli.common.topic_admin import DEVELOPMENT, TOPIC, TopicAdmin
from aiokprod.errors import BrokerAnswerError, UsageError
from aiokprod.reader import Reader
from aiokprod.wire.codes import ErrorCode, name_of
from aiokprod.wire.messages.metadata import MetadataResponseTopic

SET_ON_TOPIC: Final = 1
OF_CREATE: Final[Mapping[int, str]] = {
    ErrorCode.TOPIC_ALREADY_EXISTS: "With --if-missing a topic that is there is left alone.",
    ErrorCode.INVALID_CONFIG: "Correct -o NAME=VALUE: the names and values are those of Kafka's topic options.",
    ErrorCode.INVALID_REPLICATION_FACTOR: "Correct --replicas: there are at most as many as brokers.",
    ErrorCode.INVALID_PARTITIONS: "Correct --partitions.",
}
"""what to do, by code, where a topic is not created"""
OF_ALTER: Final[Mapping[int, str]] = {
    ErrorCode.INVALID_CONFIG: "Correct -o NAME=VALUE: the names and values are those of Kafka's topic options.",
    ErrorCode.INVALID_PARTITIONS: "Correct --partitions.",
}
"""what to do, by code, where a topic is not altered"""
KEYS_MOVE: Final = (
    "with more partitions keys move: a key's later records may be in another partition than its earlier ones, so that their"
    " order is lost for consumers, and what they keep by partition no longer fits"
)
IF_THERE: Final = "With --if-there a topic that does not exist is left out."
YES = click.option("--yes", is_flag=True, help="Do it, also where this is no development cluster.")


@click.group(cls=Group)
def topics() -> None:
    """List, create, describe, alter and delete topics.

    Creating, altering and deleting needs --yes, except on a development cluster (`aiokprod cluster`).

    \b
    Examples:
      aiokprod topics list
      aiokprod topics create orders --partitions 6 -o retention.ms=86400000 --yes
      aiokprod topics alter orders -o retention.ms=3600000 --yes

    Exit status: 0 done; 2 not done, and one line says why.
    """


@dataclass(frozen=True, slots=True)
class State:
    """The state of a topic in a few words."""

    name: str
    partitions: int
    replicas: int
    trouble: str


def state_of(topic: MetadataResponseTopic) -> State:
    """Return how a topic is."""
    name = topic.name or ""
    without_leader = [each.partition_index for each in topic.partitions if each.leader_id < 0]
    behind = [each.partition_index for each in topic.partitions if len(each.isr_nodes) < len(each.replica_nodes)]
    trouble = [name_of(topic.error_code)] if topic.error_code else []
    if without_leader:
        trouble.append(f"no leader: {_numbers(without_leader)}")
    if behind:
        trouble.append(f"replicas behind: {_numbers(behind)}")
    replicas = max((len(each.replica_nodes) for each in topic.partitions), default=0)
    return State(name, len(topic.partitions), replicas, "; ".join(trouble))


def _numbers(found: Sequence[int]) -> str:
    return ", ".join(map(str, found[:8])) + (", ..." if len(found) > 8 else "")


@topics.command("list")
@click.option("--internal", is_flag=True, help="Also the topics that Kafka made for itself.")
@click.option("-j", "--json", "as_json", is_flag=True, help="One JSON object per topic.")
@connection_options
def list_command(internal: bool, as_json: bool, connection: Connection) -> None:
    """List the topics: partitions, replicas, and what is wrong with them."""

    async def work() -> int:
        async with TopicAdmin(connection.config(), connection.timeout_s) as admin:
            answer = await admin.metadata(None)
        found = [each for each in answer.topics if internal or not each.is_internal]
        states = [state_of(each) for each in sorted(found, key=lambda each: each.name or "")]
        if as_json:
            for each in states:
                print_json(
                    {
                        "topic": each.name,
                        "partitions": each.partitions,
                        "replicas": each.replicas,
                        "trouble": each.trouble,
                    }
                )
        else:
            rows = [(each.name, each.partitions, each.replicas, each.trouble or "-") for each in states]
            print_table(("TOPIC", "PARTITIONS", "REPLICAS", "TROUBLE"), rows)
        return DONE

    run(work)


@topics.command("describe")
@click.argument("names", nargs=-1, required=True, type=Text(), metavar="TOPIC...")
@click.option("--all-options", is_flag=True, help="Also options that the topic does not set.")
@click.option("-j", "--json", "as_json", is_flag=True, help="One JSON object per topic.")
@connection_options
def describe_command(names: Sequence[str], all_options: bool, as_json: bool, connection: Connection) -> None:
    """Describe topics: leaders, replicas, offsets of each partition, and options."""

    async def work() -> int:
        config = connection.config()
        async with (
            TopicAdmin(config, connection.timeout_s) as admin,
            Reader(config, timeout=connection.timeout_s) as reader,
        ):
            for name in dict.fromkeys(names):
                await _describe(admin, reader, name, all_options, as_json)
        return DONE

    run(work)


async def _describe(admin: TopicAdmin, reader: Reader, name: str, all_options: bool, as_json: bool) -> None:
    [topic] = (await admin.metadata([name])).topics
    if topic.error_code:
        rights = "DESCRIBE and DESCRIBE_CONFIGS"
        await admin.refuse_topic(topic.error_code, f"topic {name!r} is not described", name, rights)
    options = {
        option: each.value
        for option, each in sorted((await admin.options(TOPIC, name)).items())
        if all_options or each.config_source == SET_ON_TOPIC
    }
    rows: list[tuple[int, int, list[int], list[int], int | None, int | None]] = []
    for each in sorted(topic.partitions, key=lambda one: one.partition_index):
        has_leader = each.leader_id >= 0
        first = await reader.earliest(name, each.partition_index) if has_leader else None
        end = await reader.latest(name, each.partition_index) if has_leader else None
        rows.append((each.partition_index, each.leader_id, each.replica_nodes, each.isr_nodes, first, end))
    if as_json:
        head = ("partition", "leader", "replicas", "in_sync", "first_offset", "end_offset")
        partitions = [dict(zip(head, row, strict=True)) for row in rows]
        print_json({"topic": name, "id": topic.topic_id.hex(), "partitions": partitions, "options": options})
        return
    click.echo(f"{name}: {len(rows)} {'partition' if len(rows) == 1 else 'partitions'}")
    print_table(
        ("PARTITION", "LEADER", "REPLICAS", "IN SYNC", "FIRST OFFSET", "END OFFSET"),
        [
            (
                number,
                "none" if leader < 0 else leader,
                _nodes(replicas),
                _nodes(in_sync),
                _or_dash(first),
                _or_dash(end),
            )
            for number, leader, replicas, in_sync, first, end in rows
        ],
    )
    if options:
        print_table(("OPTION", "VALUE"), [(option, _or_dash(value)) for option, value in options.items()])


def _nodes(nodes: Sequence[int]) -> str:
    return ",".join(map(str, nodes)) or "-"


def _or_dash(value: object) -> object:
    return "-" if value is None else value


@topics.command("create")
@click.argument("name", type=Text(), metavar="TOPIC")
@click.option(
    "--partitions", metavar="N", type=click.IntRange(1, 2**31 - 1), help="Default: the broker's num.partitions."
)
@click.option(
    "--replicas",
    metavar="N",
    type=click.IntRange(1, 2**15 - 1),
    help="Default: the broker's default.replication.factor.",
)
@click.option(
    "-o",
    "--option",
    "topic_options",
    type=Text(),
    multiple=True,
    metavar="NAME=VALUE",
    help="Option of the topic, as retention.ms=60000.",
)
@click.option("--if-missing", is_flag=True, help="Leave a topic alone that is there.")
@YES
@connection_options
def create_command(
    name: str,
    partitions: int | None,
    replicas: int | None,
    topic_options: Sequence[str],
    if_missing: bool,
    yes: bool,
    connection: Connection,
) -> None:
    """Create a topic. On a cluster that is not for development this needs --yes."""
    options = _pairs(topic_options)

    async def work() -> int:
        async with TopicAdmin(connection.config(), connection.timeout_s) as admin:
            is_there = if_missing and not (await admin.metadata([name])).topics[0].error_code
            may = is_there or await _may(admin, yes)
            if not is_there:
                try:
                    await admin.create(name, partitions or -1, replicas or -1, options, only_check=not may)
                except BrokerAnswerError as error:
                    # A principal without DESCRIBE is not told in metadata that a topic is there.
                    is_there = if_missing and error.code == ErrorCode.TOPIC_ALREADY_EXISTS
                    if not is_there:
                        error.advice = OF_CREATE.get(error.code or 0, error.advice)
                        raise
            if is_there:
                tell(f"topic {name!r} exists already: it is left as it is")
            elif may:
                tell(f"topic {name!r} is created")
            else:
                tell(f"would create topic {name!r}; add --yes to do it")
                return NOT_DONE
        return DONE

    run(work)


def _pairs(given: Sequence[str]) -> dict[str, str]:
    """Return what NAME=VALUE says."""
    options: dict[str, str] = {}
    for pair in given:
        option, equals, value = pair.partition("=")
        if not equals or not option:
            raise click.UsageError(f"-o {pair!r} is not NAME=VALUE")
        options[option] = value
    return options


@topics.command("alter")
@click.argument("name", type=Text(), metavar="TOPIC")
@click.option(
    "--partitions",
    metavar="N",
    type=click.IntRange(1, 2**31 - 1),
    help="So many partitions in all; keys move to others. Kafka takes none away.",
)
@click.option(
    "-o",
    "--option",
    "topic_options",
    type=Text(),
    multiple=True,
    metavar="NAME=VALUE",
    help="Set an option of the topic, as retention.ms=60000.",
)
@click.option(
    "--unset",
    type=Text(),
    multiple=True,
    metavar="NAME",
    help="The option has the broker's default again; may be repeated.",
)
@click.option(
    "--yes", is_flag=True, help="Do it: more partitions on any cluster, options where this is no development cluster."
)
@connection_options
def alter_command(
    name: str,
    partitions: int | None,
    topic_options: Sequence[str],
    unset: Sequence[str],
    yes: bool,
    connection: Connection,
) -> None:
    """Alter a topic: more partitions, and options. More partitions need --yes on every cluster, as keys move.

    Both are checked by the cluster before either is done.
    """
    options = _pairs(topic_options)
    both = sorted({*options} & {*unset})
    if both:
        raise click.UsageError(f"-o sets {both[0]!r}, and --unset takes it away: leave one of them out")
    if partitions is None and not options and not unset:
        raise click.UsageError("nothing to alter: give --partitions, -o or --unset")

    async def work() -> int:
        async with TopicAdmin(connection.config(), connection.timeout_s) as admin:
            [topic] = (await admin.metadata([name])).topics
            if topic.error_code:
                await admin.refuse_topic(topic.error_code, f"topic {name!r} is not altered", name, "ALTER")
            there = len(topic.partitions)
            if partitions is not None and partitions < there:
                raise UsageError(
                    f"topic {name!r} has {there} partitions, and Kafka takes none away: give --partitions {there} or more,"
                    " or create another topic"
                )
            more = partitions if partitions is not None and partitions > there else None
            may_grow = more is None or yes
            may = may_grow and (await _may(admin, yes))
            changes = ", ".join(
                (*(f"{option}={value}" for option, value in options.items()), *(f"no {o}" for o in unset))
            )
            try:
                for only_check in (True, False) if may else (True,):
                    if more is not None:
                        await admin.add_partitions(name, more, only_check=only_check)
                    if changes:
                        await admin.alter(name, options, unset, only_check=only_check)
            except BrokerAnswerError as error:
                error.advice = OF_ALTER.get(error.code or 0, error.advice)
                raise
            if more is not None:
                tell(KEYS_MOVE)
            what = [f"{more} partitions, up from {there}"] if more is not None else []
            what += [changes] if changes else []
            if not what:
                tell(f"topic {name!r} has {there} partitions already: there is nothing to do")
            elif may:
                tell(f"topic {name!r} has {', and '.join(what)}")
            else:
                tell(f"would give topic {name!r} {', and '.join(what)}; add --yes to do it")
                return NOT_DONE
        return DONE

    run(work)


@topics.command("delete")
@click.argument("names", nargs=-1, required=True, type=Text(), metavar="TOPIC...")
@click.option("--if-there", is_flag=True, help="No error for a topic that does not exist.")
@YES
@connection_options
def delete_command(names: Sequence[str], if_there: bool, yes: bool, connection: Connection) -> None:
    """Delete topics and all their records. On a cluster that is not for development this needs --yes."""

    async def work() -> int:
        async with TopicAdmin(connection.config(), connection.timeout_s) as admin:
            found = {topic.name: topic for topic in (await admin.metadata(names)).topics}
            for name in dict.fromkeys(names):
                code = found[name].error_code if name in found else 0
                if code and not (if_there and code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
                    await admin.refuse_topic(code, f"nothing is deleted: topic {name!r}", name, "DELETE", IF_THERE)
            there = [name for name in dict.fromkeys(names) if name in found and not found[name].error_code]
            if there and not await _may(admin, yes):
                records = ", ".join(f"{name!r} ({len(found[name].partitions)} partitions)" for name in there)
                tell(f"would delete {records}; add --yes to do it")
                return NOT_DONE
            for name in there:
                await admin.delete(name)
                tell(f"topic {name!r} is deleted")
            for name in dict.fromkeys(names):
                if name not in there:
                    tell(f"topic {name!r} does not exist: there is nothing to delete")
        return DONE

    run(work)


async def _may(admin: TopicAdmin, yes: bool) -> bool:
    """Return whether the cluster may be changed."""
    return yes or ((await admin.metadata()).cluster_id or "").startswith(DEVELOPMENT)
