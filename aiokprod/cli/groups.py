"""`aiokprod groups`: lists consumer groups, and describes them: members, and how far they have read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import click

from aiokprod.cli.common.connection import Connection, connection_options
from aiokprod.cli.common.group import Group
from aiokprod.cli.common.group_admin import GroupAdmin, GroupDescription
from aiokprod.cli.common.parameter import Text
from aiokprod.cli.common.printing import print_json, print_table
from aiokprod.cli.common.running import run
from aiokprod.cli.common.statuses import DONE


@click.group(cls=Group)
def groups() -> None:
    """List and describe consumer groups, with their lag.

    \b
    Examples:
      aiokprod groups list
      aiokprod groups describe billing

    Exit status: 0 done; 2 not done, and one line says why.
    """


@groups.command("list")
@click.option("-j", "--json", "as_json", is_flag=True, help="One JSON object per group.")
@connection_options
def list_command(as_json: bool, connection: Connection) -> None:
    """List the groups: type, state, and which broker coordinates them."""

    async def work() -> int:
        async with GroupAdmin(connection.config(), connection.timeout_s) as admin:
            found = await admin.groups()
        if as_json:
            for each in found:
                print_json(asdict(each))
        else:
            rows = [
                (each.group, each.type or "-", each.state or "-", each.protocol or "-", each.coordinator)
                for each in found
            ]
            print_table(("GROUP", "TYPE", "STATE", "PROTOCOL", "COORDINATOR"), rows)
        return DONE

    run(work)


@groups.command("describe")
@click.argument("names", nargs=-1, required=True, type=Text(), metavar="GROUP...")
@click.option("-j", "--json", "as_json", is_flag=True, help="One JSON object per group.")
@connection_options
def describe_command(names: Sequence[str], as_json: bool, connection: Connection) -> None:
    """Describe groups: of each partition the offset, the end, the lag, and the member that reads it.

    OFFSET is where the group reads on, END where the log ends, and LAG the difference: records that are not read yet. A
    partition without a committed offset has no lag.
    """

    async def work() -> int:
        async with GroupAdmin(connection.config(), connection.timeout_s) as admin:
            for name in dict.fromkeys(names):
                found = await admin.describe(name)
                if as_json:
                    print_json(_as_json(found))
                else:
                    _print(found)
        return DONE

    run(work)


def _as_json(found: GroupDescription) -> dict[str, Any]:
    return {
        "group": found.group,
        "type": found.type,
        "state": found.state,
        "assignor": found.assignor,
        "coordinator": found.coordinator,
        "lag": found.lag,
        "members": [asdict(each) for each in found.members],
        "partitions": [
            {
                "topic": each.topic,
                "partition": each.partition,
                "offset": each.offset,
                "end": each.end,
                "lag": each.lag,
                "member": None if each.member is None else each.member.member,
            }
            for each in found.partitions
        ],
    }


def _print(found: GroupDescription) -> None:
    count = len(found.members)
    assignor = f", {found.assignor}" if found.assignor else ""
    click.echo(
        f"{found.group}: {found.type}, {found.state}{assignor}, coordinator {found.coordinator},"
        f" {count} {'member' if count == 1 else 'members'}, lag {found.lag:,}"
    )
    rows: list[tuple[object, ...]] = [
        (
            each.topic,
            each.partition,
            *("-" if number is None else number for number in (each.offset, each.end, each.lag)),
            *(("-", "-", "-") if each.member is None else (each.member.member, each.member.host, each.member.client)),
        )
        for each in found.partitions
    ]
    rows += [
        ("-", "-", "-", "-", "-", each.member, each.host, each.client) for each in found.members if not each.partitions
    ]
    if rows:
        print_table(("TOPIC", "PARTITION", "OFFSET", "END", "LAG", "MEMBER", "HOST", "CLIENT"), rows)
