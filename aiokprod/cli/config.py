"""`aiokprod config explain`: what an option means, what value it has here, and where that came from."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, Final

import click

from aiokprod.cli.common.connection import Connection, settings_options
from aiokprod.cli.common.group import Group
from aiokprod.cli.common.parameter import Text
from aiokprod.cli.common.printing import print_json, print_table
from aiokprod.cli.common.running import line_of, tell
from aiokprod.cli.common.statuses import DONE, NOT_DONE
from aiokprod.cli.option_meanings import MEANINGS
from aiokprod.config import ProducerConfig
from aiokprod.config.command_line import (
    Problem,
    Setting,
    config_of_settings,
    divided,
    effective,
    fitting,
    our_name,
    problems_of,
    shown_alone,
    without_types,
)
from aiokprod.config.environment import NOT_TEXTS
from aiokprod.config.foreign_names import CODEC_LEVELS, RENAMED
from aiokprod.config.unknown import unknown_option
from aiokprod.errors import ConfigError

NOWHERE: Final = "localhost:9092"
FOR_COMMANDS: Final = "of the command line: a person waits"


@click.group(cls=Group)
def config() -> None:
    """Explain options: meaning, value, and where it came from."""


@config.command("explain")
@click.argument("names", nargs=-1, type=Text(), metavar="[OPTION]...")
@click.option("--all", "shows_all", is_flag=True, help="All options, not only those that are set.")
@click.option("-j", "--json", "as_json", is_flag=True, help="One JSON object per option.")
@settings_options
def explain_command(names: Sequence[str], shows_all: bool, as_json: bool, connection: Connection) -> None:
    """Explain options: what they mean, their type and default, the value they have here and where it came from.

    With names, in any client's spelling, these; without, those that are set somewhere. The same -b, --config, -X and variables
    are read as by all other commands, and nothing is connected to. Passwords and keys are not shown.

    \b
    Examples:
      aiokprod config explain linger.ms
      aiokprod config explain --config client.properties

    All that is wrong is told on standard error, one line each.

    Exit status: 0; 2 if an option is unknown or wrong.
    """  # fmt: skip
    raise SystemExit(_explained(names, shows_all, as_json, connection))


def _explained(names: Sequence[str], shows_all: bool, as_json: bool, connection: Connection) -> int:
    wanted: list[str] = []
    is_wrong = False
    for name in names:
        try:
            wanted.append(_known(name))
        except ConfigError as error:
            is_wrong = True
            tell(line_of(error))
    settings = connection.settings()
    problems = problems_of(_with_server(settings))
    for problem in problems:
        is_wrong = True
        tell(_line_of(problem))
    right, wrong = divided(settings, problems)
    shown = _with_server(right)  # what is right is shown nevertheless
    fits = fitting(shown)
    made = config_of_settings(fits)
    left_out = {each.option for each in shown} - {each.option for each in fits}
    values = _shown(made) | {name: text for name, text in shown_alone(shown).items() if name in left_out}
    unusable = {each.option for each in wrong}
    if shows_all:
        wanted = ProducerConfig.names()
    elif not names:
        given = {each.option for each in settings if each.option} - unusable
        wanted = [name for name in ProducerConfig.names() if name in given]
        if not wanted and not is_wrong:
            tell("nothing is set here; --all shows all options, a name one of them")
    found = [explained(name, made, values[name], settings, name in unusable) for name in wanted]
    if as_json:
        for each in found:
            print_json(each)
    elif names:
        for number, each in enumerate(found):
            click.echo(("\n" if number else "") + "\n".join(_paragraph(each)))
    elif found:
        print_table(("OPTION", "VALUE", "FROM"), [(e["option"], e["value"], e["from"]) for e in found])
    return NOT_DONE if is_wrong else DONE


def _line_of(problem: Problem) -> str:
    """Return what is wrong, after its source; not twice, where the error begins with the variable or the file."""
    said, source = line_of(problem.error), problem.setting.source if problem.setting else ""
    is_told = said.removeprefix("'").startswith(source.removeprefix("--config "))
    return said if is_told else f"{source}: {said}"


def _known(name: str) -> str:
    name, equals, _ = name.partition("=")
    if equals:  # the value is not repeated: it may be a password
        raise ConfigError(f"'{name}=...' is no name of an option: values are set by -X NAME=VALUE")
    ours = our_name(name)
    if not ours:
        raise unknown_option(name, ProducerConfig.names())
    return ours


def _with_server(settings: list[Setting]) -> list[Setting]:
    """Add a server below all others: options can be explained without a cluster."""
    return [Setting("bootstrap_servers", "bootstrap_servers", NOWHERE, "", -1), *settings]


def explained(
    name: str, made: ProducerConfig, value: str, settings: Sequence[Setting], is_unusable: bool
) -> dict[str, Any]:
    """Return what there is to say about an option.

    Args:
        name: our name of it.
        made: the config of the settings that fit together.
        value: of the option, as it is shown.
        settings: what was given, also what is overridden.
        is_unusable: what was given is wrong.
    """
    field = {item.name: item for item in dataclasses.fields(ProducerConfig)}[name]
    chosen = {each.option: each for each in effective(settings)}.get(name)
    others = [each for each in settings if each.option == name and each is not chosen]
    if is_unusable:
        value = "none: the one that is given is wrong"
    if name == "bootstrap_servers" and chosen is None:
        value, origin = "not set", "nowhere: it is needed"
    elif chosen is not None:
        origin = _origin(chosen)
    elif name == "start_timeout_ms":
        origin = f"default {FOR_COMMANDS}"
    else:
        default = None if field.default is dataclasses.MISSING else field.default
        origin = "default" if getattr(made, name) == default else "derived from other options"
    spellings = {
        java for java, ours in (*RENAMED.items(), *((n, "compression_level") for n in CODEC_LEVELS)) if ours == name
    }
    return {
        "option": name,
        "meaning": MEANINGS[name],
        "type": without_types(field.metadata["check"].describe()),
        "default": "none: it is needed" if field.default is dataclasses.MISSING else _set(repr(field.default)),
        "value": _set(value),
        "from": origin,
        "overridden": [_origin(each) for each in reversed(others)],
        "variable": None if name in NOT_TEXTS else f"AIOKPROD_{name.upper()}",
        "spellings": sorted({name.replace("_", "."), *spellings}),
    }


def _shown(made: ProducerConfig) -> dict[str, str]:
    """Return the value of each option as the config shows it: secrets stay hidden."""
    lines = (line.rpartition(" (")[0].partition(" = ") for line in made.explain())
    return {name: value for name, _, value in lines}


def _set(value: str) -> str:
    return "not set" if value == "None" else value


def _origin(setting: Setting) -> str:
    is_named = setting.written in (setting.option, setting.option.replace("_", "."))
    return setting.source if is_named else f"{setting.source} ({setting.written})"


def _paragraph(each: dict[str, Any]) -> list[str]:
    lines = [
        each["option"],
        f"  {each['meaning']}",
        f"  value:     {each['value']}",
        f"  from:      {each['from']}",
        f"  must be:   {each['type']}",
        f"  default:   {each['default']}",
    ]
    if each["overridden"]:
        lines.append(f"  overrides: {', '.join(each['overridden'])}")
    if each["variable"]:
        lines.append(f"  variable:  {each['variable']}")
    lines.append(f"  spellings: {', '.join(each['spellings'])}")
    return lines
