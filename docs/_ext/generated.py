"""The generated parts of the site: options, errors, the API and the command line, made from the code at each build.

A page asks for a part by a line `<!-- generated: NAME -->`, which is replaced by Markdown while Sphinx reads the page. So
nothing that is generated is kept in the repository, and nothing of it can be out of date.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Callable, Iterable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, Final, get_args

DOCS: Final = Path(__file__).resolve().parents[1]
ASKED: Final = re.compile(r"^<!-- generated: ([\w.]+) -->$", re.MULTILINE)
README_LINK: Final = re.compile(r"\]\((?:\.\./)+README\.md(?:#[\w-]+)?")
FILE_NAME: Final = re.compile(r"\[[\w/-]+\.md\]\((?!https?:)")
"""Begins a link whose text is the name of a file: right on a disk, and no name of a page on the site."""
BUILT_HERE: Final = re.compile(r"^`nox -s docs` builds this page; .*\n\n", re.MULTILINE)
"""What a page without its generated part says of that."""
EFFECTS: Final = (
    *(
        "Answer",
        "Blackhole",
        "Close",
        "Corrupt",
        "Delay",
        "Drip",
        "Drop",
        "Duplicate",
        "Effect",
        "Fail",
        "Hold",
        "HugeLength",
    ),
    *(
        "ItemEffect",
        "Omit",
        "Rechunk",
        "Refuse",
        "Rewrite",
        "Run",
        "Swallow",
        "Throttle",
        "Truncate",
        "WrongCorrelation",
    ),
)
"""What a fault may do: docs/faults_language.md."""
API: Final = {
    "producer": ("aiokprod.Producer",),
    "blocking": ("aiokprod.blocking.*",),
    "config": (
        "aiokprod.ProducerConfig",
        "aiokprod.OAuthToken",
        "aiokprod.Partitioner",
        "aiokprod.config.ProducerOptions",
        "aiokprod.config.Secret",
    ),
    "records": (
        "aiokprod.Record",
        "aiokprod.RecordBatch",
        "aiokprod.RecordMetadata",
        "aiokprod.TimestampType",
        "aiokprod.Delivery",
        "aiokprod.Persistence",
        "aiokprod.SendReport",
        "aiokprod.CloseReport",
        "aiokprod.PurgeReport",
        "aiokprod.Health",
        "aiokprod.ProducerState",
    ),
    "columns": (
        "aiokprod.BytesColumn",
        "aiokprod.IntColumn",
        "aiokprod.HeadersColumn",
        "aiokprod.ColumnsReport",
        "aiokprod.ColumnsPartition",
        "aiokprod.ColumnsPlacement",
    ),
    "transactions": (
        "aiokprod.Transaction",
        "aiokprod.TransactionOutcome",
        "aiokprod.InTransaction",
        "aiokprod.GroupMetadata",
        "aiokprod.exactly_once",
        "aiokprod.end_transaction",
        "aiokprod.PreparedTransaction",
        "aiokprod.PreparedPartition",
        "aiokprod.transactions.admin.*",
    ),
    "explanation": ("aiokprod.explanation.*",),
    "interceptors": (
        "aiokprod.ProducerInterceptor",
        "aiokprod.hooks.RecordOutcome",
        "aiokprod.hooks.Server",
        "aiokprod.hooks.BatchSealed",
        "aiokprod.hooks.BatchSent",
        "aiokprod.hooks.BatchAnswered",
        "aiokprod.hooks.BatchSettled",
        "aiokprod.hooks.DataLoss",
    ),
    "reader": ("aiokprod.Reader",),
    "serializers": ("aiokprod.serializers.*", "aiokprod.serializers.HeaderList"),
    "integrations": (
        "aiokprod.integrations.fastapi.*",
        "aiokprod.integrations.starlette.*",
        "aiokprod.integrations.aiohttp.*",
        "aiokprod.integrations.aiohttp.PRODUCER",
        "aiokprod.integrations.opentelemetry.*",
        "aiokprod.integrations.prometheus.*",
        "aiokprod.integrations.schema_registry.SchemaRegistry",
        "aiokprod.integrations.schema_registry.value_serializer",
        "aiokprod.integrations.schema_registry.key_serializer",
        "aiokprod.integrations.schema_registry.RegistrySerializer",
    ),
    "compat": ("aiokprod.compat.aiokafka.*",),
    "claims": ("aiokprod.claims.*", "aiokprod.audit.*"),
    "spark": ("aiokprod.spark.*", "aiokprod.spark.fingerprint.row_hashes", "aiokprod.spark.fingerprint.total"),
    "testing": (
        "aiokprod.testing.*",
        *(f"aiokprod.testing.faults.{name}" for name in EFFECTS),
        "aiokprod.testing.faults.FaultVerbs",
        "aiokprod.testing.virtual.run_virtual",
        "aiokprod.testing.virtual.VirtualNetwork",
    ),
}
"""The names on each page `docs/reference/api_NAME.md`; `module.*` stands for the public names of a module."""
NOT_INHERITED: Final = ("object", "dict", "tuple", "int", "str", "Enum", "Exception", "Generic", "Protocol", "Producer")
"""Classes whose members are not shown again at the classes that derive from them."""
BASES_OF_VALUES: Final = ("Value", "FrozenValue")  # `aiokprod.values`: they have no members of their own
INNER: Final = ("checked", "three_arguments")  # functions of `serializers` that the pipeline calls, and programs do not
NAME_OF_CHOICES: Final = re.compile(r"\b([A-Z]\w+Name)\b")


IN_THE_MESSAGE: Final = {
    "AiokprodError": "Look at `persistence`, then at the kind of error.",
    "ConfigError": "Correct the option that the message names; it says what the option must be.",
    "KafkaClusterError": "Do what the message says: it names what is missing on this machine, or has the log of a broker.",
    "KafkaAdminError": "Look at `code` and at the broker's words in the message, and correct the request.",
}
"""What to do about errors whose class has no advice, as the message of each has it."""


# ---------------------------------------------------------------------- options
@dataclasses.dataclass(frozen=True)
class Option:
    """One option, as the code and the table of docs/configuration.md have it."""

    name: str
    kind: str
    default: str
    unit: str
    must_be: str
    java: str
    librdkafka: str
    meaning: str

    @property
    def source(self) -> str:
        """Where the option comes from: a client that has it, or a KIP, or aiokprod alone."""
        known = [f"Java: {self.java}"] if self.java else []
        known += [f"librdkafka: {self.librdkafka}"] if self.librdkafka else []
        known += sorted(set(re.findall(r"KIP-\d+", self.meaning)))
        return "; ".join(known) or "aiokprod's own"

    @property
    def other_names(self) -> list[str]:
        """The names in other clients."""
        return list(dict.fromkeys(re.findall(r"`([^`]+)`", f"{self.java} {self.librdkafka}")))

    @property
    def variable(self) -> str:
        """The variable of the environment that sets it; empty for an option that is an object."""
        from aiokprod.config.environment import NOT_TEXTS

        return "" if self.name in NOT_TEXTS else f"`AIOKPROD_{self.name.upper()}`"


def options() -> Iterator[Option]:
    """Yield every option of `ProducerConfig`, in its order.

    Raises:
        ValueError: docs/configuration.md has no row for an option.
    """
    from aiokprod.config import ProducerConfig
    from aiokprod.config import options as declared

    names = {name: value for name, value in vars(declared).items() if name.endswith("Name")}
    hints = {name: text for kind in declared.ProducerOptions.__mro__ for name, text in _annotations(kind).items()}
    hints |= {
        name: text
        for kind in (declared._Options, declared.ProducerOptions)
        for name, text in _annotations(kind).items()
    }
    rows = configuration_rows()
    for field in dataclasses.fields(ProducerConfig):
        if field.name not in rows:
            raise ValueError(f"docs/configuration.md has no row for the option {field.name}")
        _, default, unit, must_be, java, librdkafka, meaning = rows[field.name]
        kind = NAME_OF_CHOICES.sub(
            lambda match: (
                f"Literal[{', '.join(map(repr, get_args(names[match[1]])))}]" if match[1] in names else match[1]
            ),
            hints.get(field.name, str(field.type)),
        )
        is_required = field.default is dataclasses.MISSING
        assert default == ("required" if is_required else f"`{field.default!r}`"), field.name
        assert must_be == field.metadata["check"].describe(), field.name
        yield Option(field.name, kind, default, unit, must_be, java, librdkafka, meaning)


def _annotations(kind: type) -> dict[str, str]:
    own = inspect.get_annotations(kind)
    return {name: getattr(value, "__forward_arg__", str(value)) for name, value in own.items()}


def configuration_rows() -> dict[str, list[str]]:
    """Return the rows of the table of docs/configuration.md, by option."""
    page = (DOCS / "configuration.md").read_text(encoding="utf-8")
    section = page.split("\n## Options\n")[1].split("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("| `")]
    rows = [[cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip("|"))] for line in lines]
    return {row[0].strip("`"): row for row in rows}


def options_markdown() -> str:
    """Return a section for each option."""
    parts = []
    for option in options():
        meaning = re.sub(r"\]\((?=[\w/-]+\.md)", "](../", option.meaning).replace("](#", "](../configuration.md#")
        facts = {
            "Type": f"`{option.kind}`",
            "Default": option.default,
            "Unit": option.unit,
            "Must be": option.must_be,
            "Environment": option.variable,
            "Source": option.source,
        }
        lines = [f"- {name}: {text}" for name, text in facts.items() if text]
        index = index_of(option.other_names) if option.other_names else ""
        parts.append(f"## `{option.name}`\n\n{index}{meaning}\n\n" + "\n".join(lines) + "\n")
    return "\n".join(parts)


# ---------------------------------------------------------------------- errors
ERRORS: Final = {
    "": ("aiokprod.errors",),
    "Errors of Spark": ("aiokprod.spark.errors", "aiokprod.spark.exactly_once.errors"),
    "Errors of schema registries": ("aiokprod.integrations.schema_registry",),
    "Errors of test clusters": ("aiokprod.testing.kafka_cluster",),
}
"""The modules of public errors, by the heading over them; those of the package itself have none."""


def error_kinds(module_name: str) -> list[type]:
    """Return the public errors of a module, in its order."""
    from aiokprod.errors import AiokprodError

    module = import_module(module_name)
    found = (getattr(module, name) for name in public_names(module))
    return [each for each in found if inspect.isclass(each) and issubclass(each, AiokprodError)]


def errors_markdown() -> str:
    """Return a section for each error: its meaning, where it is raised, and what to do."""
    raised = raisers()
    parts = []
    for heading, modules in ERRORS.items():
        parts += [f"## {heading}\n"] if heading else []
        for module in modules:
            parts += [
                f"{'###' if heading else '##'} {kind.__name__}\n\n"
                + error_directive(kind, f"{module}.{kind.__name__}", list(raised.get(kind.__name__, {})))
                for kind in error_kinds(module)
            ]
    return "\n".join(parts)


def error_directive(kind: Any, label: str, raised_by: list[str]) -> str:
    """Return what the section of one error says."""
    from aiokprod.errors import DeliveryError

    if kind.default_persistence is not None:
        persistence = f"``{kind.default_persistence.name}``"
    elif issubclass(kind, DeliveryError):
        persistence = "of each record"
    else:
        persistence = "None: it is not about one record"
    advice = vars(kind).get("advice") or IN_THE_MESSAGE.get(kind.__name__)
    if not advice:
        raise ValueError(f"{kind.__name__}.advice says nothing: what is to be done about this error?")
    bases = " and ".join(f":py:exc:`~{base.__module__}.{base.__name__}`" for base in kind.__bases__)
    text = restructured(inspect.cleandoc(kind.__doc__ or "").split("\n"))
    lines = [
        f".. py:exception:: {label}",
        "   :no-contents-entry:",
        "",
        *(f"   {line}".rstrip() for line in text),
        "",
        f"   - **What to do:** {' '.join(restructured([advice]))}",
        f"   - Is a: {bases}",
        f"   - Persistence: {persistence}",
        f"   - Retriable: {retriable(kind)}",
    ]
    if raised_by:
        lines.append(f"   - Named by: {', '.join(f'``{name}``' for name in raised_by)}")
    return "```{eval-rst}\n" + "\n".join(lines) + "\n```\n"


def retriable(kind: Any) -> str:
    """Return when another attempt can help, as an error itself says it."""
    from aiokprod import Persistence

    said = []
    for persistence in (Persistence.POSSIBLY_PERSISTED, Persistence.NOT_PERSISTED):
        error = kind.__new__(kind)
        error.persistence = persistence
        said.append(error.retriable)
    return "yes" if said[0] else "if it is ``NOT_PERSISTED``" if said[1] else "no"


def raisers() -> dict[str, dict[str, None]]:
    """Return which calls name an error in the section `Raises` of their docstrings."""
    found: dict[str, dict[str, None]] = {}
    for page in API.values():
        for label, value in named(page):
            calls = {label: value}
            if inspect.isclass(value):
                calls |= {f"{label}.{name}": member for name, member in vars(value).items() if not name.startswith("_")}
            for name, call in calls.items():
                _, _, section = (getattr(call, "__doc__", None) or "").partition("Raises:\n")
                section = re.split(r"\n *(?:Cancellation|Returns|Yields|Source)\b", section)[0]
                for error in re.findall(r"^ {12,}(\w+Error)\b|^ {8}(\w+Error)\b", section, re.MULTILINE):
                    found.setdefault(error[0] or error[1], {})[name.removeprefix("aiokprod.")] = None
    return found


# ---------------------------------------------------------------------- the API
def named(page: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    """Yield the objects of a page, with the names that users import them by."""
    for path in page:
        module_name, _, name = path.rpartition(".")
        module = import_module(module_name)
        for each in public_names(module) if name == "*" else [name]:
            yield f"{module_name}.{each}", getattr(module, each)


def public_names(module: Any) -> list[str]:
    """Return the public names of a module."""
    listed = getattr(module, "__all__", None)
    if listed is not None:
        return list(listed)
    own = (name for name, value in vars(module).items() if getattr(value, "__module__", None) == module.__name__)
    return [name for name in own if not name.startswith("_") and name not in INNER]


def api_markdown(page: str) -> str:
    """Return the section of each object of a page of the API."""
    parts = []
    for label, value in named(API[page]):
        if inspect.isclass(value):
            is_error = issubclass(value, BaseException)
            directive = (
                f".. auto{'exception' if is_error else 'class'}:: {label}\n   :members:\n   :show-inheritance:\n"
            )
            if not is_error:
                directive += f"   :inherited-members: {', '.join(NOT_INHERITED)}\n"
        elif callable(value) and not hasattr(value, "__origin__"):  # not an alias of a type
            directive = f".. autofunction:: {label}\n"
        else:
            directive = f".. autodata:: {label}\n"
        parts.append(f"## {label.rpartition('.')[2]}\n\n```{{eval-rst}}\n{directive}```\n")
    return "\n".join(parts)


# ---------------------------------------------------------------------- the command line
WIDTH: Final = 86  # characters of a line of code in the widest window


def command_group() -> Any:
    """Return the group of commands that `aiokprod` runs."""
    from aiokprod.cli.commands import group
    from aiokprod.version import __version__

    return group(__version__, __version__)


def commands(command: Any, context: Any) -> Iterator[tuple[str, str]]:
    """Yield the path and the help of a command, then those of the commands under it."""
    import click

    yield context.command_path, command.get_help(context)
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            if inner is not None and not inner.hidden:
                yield from commands(inner, click.Context(inner, info_name=name, parent=context))


def command_line_markdown() -> str:
    """Return a section for each command, with its help."""
    import click

    group = command_group()
    widths = {"terminal_width": WIDTH, "max_content_width": WIDTH}
    context = click.Context(group, info_name="aiokprod", **{**group.context_settings, **widths})
    return "\n".join(f"## `{path}`\n\n```text\n{text}\n```\n" for path, text in commands(group, context))


# ---------------------------------------------------------------------- the tree, and the pages that ask
OPERATIONS: Final = (
    *("health", "metrics", "operations/*", "explain*", "tracing*", "opentelemetry*", "telemetry*", "prometheus*"),
    *("hooks*", "doctor*", "command_line*"),
)
"""Pages of operations, in their order: they are in the tree of the first page as soon as they are there."""


def operations_markdown() -> str:
    """Return the part of the tree with the pages of `OPERATIONS`."""
    found = [page for pattern in OPERATIONS for page in sorted(DOCS.glob(f"{pattern}.md"))]
    names = "\n".join(page.relative_to(DOCS).with_suffix("").as_posix() for page in found)
    return f"```{{toctree}}\n:caption: Operations\n:maxdepth: 1\n\n{names}\n```"


PARTS: Final[dict[str, Callable[[], str]]] = {
    "options": options_markdown,
    "errors": errors_markdown,
    "command_line": command_line_markdown,
    "operations": operations_markdown,
}


def part(name: str) -> str:
    """Return one generated part: `api.NAME`, or a key of `PARTS`."""
    kind, _, page = name.partition(".")
    return api_markdown(page) if kind == "api" else PARTS[name]()


WORDS: Final = {
    "exactly_once": ("consumer", "consume", "read records"),
    "errors": ("error",),
    "how-to/errors_and_retries": ("unknown topic", "topic does not exist", "retry", "timeout"),
    "sending": ("partition key", "key"),
    "testing": ("docker", "containers"),
    "explanation/memory": ("buffer full",),
}
"""What users search for, by the page that has the answer: the search finds a page by it before all that only contain it."""


def index_of(words: Iterable[str]) -> str:
    """Return an entry of the index for each of these words, so that the search finds the place by them."""
    return "```{eval-rst}\n.. index::\n" + "\n".join(f"   ! single: {word}" for word in words) + "\n```\n\n"


def with_titles(text: str) -> str:
    """Return a page whose links have the title of what they lead to where their text is the name of a file."""
    return FILE_NAME.sub("[](", text)


def short_table(page: str) -> str:
    """Return the page of the configuration with three columns of its table; the list of options has all of them."""
    before, heading, after = page.partition("\n## Options\n")
    section, _, rest = after.partition("\n## ")
    text = section[: section.index("\n| ")]
    rows = (
        f"| [`{name}`](reference/options.md#{name}) | {row[1]} | {row[-1]} |"
        for name, row in configuration_rows().items()
    )
    table = "\n".join(("| option | default | meaning |", "|---|---|---|", *rows))
    return f"{before}{heading}{text}\n{table}\n\n## {rest}"


def filled(docname: str, text: str) -> str:
    """Return the text of a page as the site has it: with its generated parts, and links that lead to pages of the site."""
    text = ASKED.sub(lambda match: part(match[1]), BUILT_HERE.sub("", text))
    if docname == "configuration":
        text = short_table(text)
    if docname in WORDS:
        title, _, rest = text.partition("\n\n")
        text = f"{title}\n\n{index_of(WORDS[docname])}{rest}"
    return README_LINK.sub(f"]({'../' * docname.count('/')}index.md", with_titles(text))


# ---------------------------------------------------------------------- docstrings
def restructured(lines: list[str]) -> list[str]:
    """Return a docstring, which is plain text with single backticks and indented examples, as reStructuredText."""
    text = LITERAL.sub(lambda match: f"``{match[1]}``" + ("\\ " if match[2] else ""), "\n".join(lines))
    parts = re.split(r"(``.+?``)", text)
    text = "".join(part if part.startswith("``") else TRAILING_UNDERSCORE.sub(r"\1\\_", part) for part in parts)
    text = SINGLE_LINES.sub(r"\n**\1:** ", text).replace("\n``async with`` raises:\n", f"\n{OF_BLOCKS}:\n")
    result: list[str] = []
    is_example = False
    for line in text.split("\n"):
        begins = line.startswith("    ") and bool(result) and not result[-1].strip()
        if begins and not is_example and not any(SECTION.match(before) for before in result):
            result += ["::", ""]
            is_example = True
        elif line.strip() and not line.startswith("    "):
            is_example = False
        result.append(line)
    return result


OF_BLOCKS: Final = "Raised by async with"  # also in conf.py
LITERAL: Final = re.compile(r"(?<!`)`([^`\n]+)`(?!`)(?=(\w?))")
TRAILING_UNDERSCORE: Final = re.compile(r"\b([A-Za-z]\w*)_(?!\w)")
SINGLE_LINES: Final = re.compile(r"\n(Cancellation|Source): ")
SECTION: Final = re.compile(r"(Args|Attributes|Returns|Yields|Raises|Raised by async with):$")


def _on_docstring(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    lines[:] = restructured(lines)


def _on_bases(app: Any, name: str, obj: Any, options: Any, bases: list[Any]) -> None:
    names = [getattr(base, "__name__", "") for base in bases]
    shown = [not name.startswith("_") and name not in BASES_OF_VALUES for name in names]
    bases[:] = [base for base, is_shown in zip(bases, shown, strict=True) if is_shown] or [object]


def _on_source_read(app: Any, docname: str, source: list[str]) -> None:
    source[0] = filled(docname, source[0])


def _on_env_updated(app: Any, env: Any) -> list[str]:
    """Leave the changelog out of the search: it names everything, and would be found first."""
    env.metadata["CHANGELOG"]["nosearch"] = ""
    return []


def setup(app: Any) -> dict[str, bool]:
    """Connect to Sphinx."""
    app.connect("source-read", _on_source_read)
    app.connect("env-updated", _on_env_updated)
    app.connect("autodoc-process-docstring", _on_docstring, priority=100)  # before napoleon
    app.connect("autodoc-process-bases", _on_bases)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
