"""Every fenced block of every page is checked by a test: `CHECKED` says which; for some blocks it is this one."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest
import uvicorn
import yaml
from page_blocks import refused
from page_programs import ROOT, blocks, label, pages

from aiokprod import ProducerConfig
from aiokprod.config.secret import Secret

PROGRAMS: Final = "tests/pages/test_page_programs.py"
COMMANDS: Final = "tests/pages/test_page_command_lines.py"
TUTORIAL: Final = "tests/pages/test_tutorial.py"
COMMAND_LINE: Final = "tests/unit/project/test_command_line_page.py"
SITE: Final = "tests/unit/project/test_site.py"
SPARK_PAGES: Final = "tests/spark/test_spark_pages.py"
POSTGRESQL: Final = "tests/frameworks/test_outbox_in_postgresql.py"
HERE: Final = Path(__file__).resolve().relative_to(ROOT).as_posix()
OF_LANGUAGES: Final[Mapping[str, str]] = {
    "python": PROGRAMS,  # each block is in a program of its page, which is run there or by the test of its page
    "sh": COMMANDS,  # each line is in `RUNS`, or its page in `RUN`
}
"""The languages whose blocks one test looks for on all pages: it fails for a block that it does not run."""
CHECKED: Final[Mapping[tuple[str, str], tuple[str, ...]]] = {
    ("docs/audit.md", ""): (COMMANDS,),
    ("docs/audit.md", "text"): (SPARK_PAGES,),
    ("docs/command_line.md", ""): (COMMANDS, COMMANDS),
    ("docs/command_line.md", "text"): (COMMAND_LINE,) * 21,
    ("docs/design.md", ""): (HERE,) * 4,
    ("docs/exactly_once.md", "sql"): ("tests/unit/consuming/test_exactly_once_page.py", POSTGRESQL),
    ("docs/exactly_once.md", "postgresql"): (POSTGRESQL,),
    ("docs/explain.md", "text"): ("tests/unit/project/test_explain_page.py",),
    ("docs/explanation/delivery_and_order.md", "text"): (PROGRAMS,),
    ("docs/explanation/memory.md", "text"): (PROGRAMS,),
    ("docs/hooks.md", "text"): ("tests/unit/project/test_hooks_page.py",),
    ("docs/how-to/aiokafka_drop_in.md", "text"): (PROGRAMS,),
    ("docs/how-to/blocking.md", "text"): (PROGRAMS,) * 2,
    ("docs/how-to/deployment.md", "text"): (PROGRAMS,),
    ("docs/how-to/deployment.md", "yaml"): ("tests/pages/test_deployment_page.py",),  # and here
    ("docs/how-to/errors_and_retries.md", "text"): (PROGRAMS,) * 2,
    ("docs/how-to/partitioners.md", "text"): (PROGRAMS,),
    ("docs/how-to/security.md", "properties"): ("tests/pages/test_security_templates.py",) * 11,
    ("docs/how-to/several_producers.md", "text"): (PROGRAMS,),
    ("docs/how-to/shutdown.md", "text"): (PROGRAMS,) * 2,
    ("docs/how-to/threads.md", "text"): (PROGRAMS,),
    ("docs/how-to/tuning.md", "text"): (PROGRAMS,) * 2,
    ("docs/index.md", "{toctree}"): (SITE,) * 6,
    ("docs/prometheus.md", "text"): ("tests/frameworks/test_prometheus_workers.py",),
    ("docs/reference/api_interceptors.md", "text"): (PROGRAMS,),
    ("docs/sending.md", "text"): (PROGRAMS,) * 3,
    ("docs/soak.md", ""): (COMMANDS,),
    ("docs/spark_exactly_once.md", ""): (HERE,),
    ("docs/testing.md", "text"): (HERE,),
    ("docs/tutorial.md", "text"): (TUTORIAL,) * 5,
}
"""The tests of all other blocks, by page and language: one for each block, in their order."""
NAME: Final = re.compile(r"\b(?:[A-Z]\w*[a-z]\w*[A-Z]\w*|_\w+|\w+(?=\.\w)|(?<=\.)\w+|\w+_\w+)\b")
"""What looks like a name of the sources: CamelCase, with an underscore, or beside a dot."""


def found() -> list[tuple[str, str, str]]:
    """Return each block of each page: the page, the language and the text."""
    return [(block.page, block.language, block.text) for page in pages() for block in blocks(page)]


def texts(page: str, language: str) -> list[str]:
    return [text for of, kind, text in found() if (of, kind) == (page, language)]


def sources(folder: str = "") -> str:
    return "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "aiokprod" / folder).rglob("*.py"))


def test_every_block_of_every_page_has_a_test() -> None:
    counts = Counter((page, language) for page, language, _ in found() if language not in OF_LANGUAGES)
    assert counts == {kind: len(tests) for kind, tests in CHECKED.items()}


@pytest.mark.parametrize("page", pages(), ids=label)
def test_a_page_has_no_code_that_the_tests_do_not_see(page: Path) -> None:
    assert refused(page.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    "code",
    [
        "~~~sh\naiokprod clusterr\n~~~",
        "```sh title\naiokprod clusterr\n```",
        '```python title="app.py"\nprint(1)\n```',
        "``` sh\naiokprod clusterr\n```",
        "````sh\naiokprod clusterr\n````",
        ":::{code-block} sh\naiokprod clusterr\n:::",
        "```{code-block} sh\naiokprod clusterr\n```",
        "```{literalinclude} app.py\n```",
        "    aiokprod clusterr",
        "\taiokprod clusterr",
        ">     aiokprod clusterr",
        "- an item\n\n      aiokprod clusterr",
        "- ```sh\n  aiokprod clusterr\n  ```",
        "1. ~~~sh\n   aiokprod clusterr\n   ~~~",
        "> ```sh\n> aiokprod clusterr\n> ```",
        "<pre>\naiokprod clusterr\n</pre>",
        "```sh\naiokprod clusterr\n``` ",
        "```sh\naiokprod clusterr\n````",
        "```sh\naiokprod clusterr",
    ],
)
@pytest.mark.parametrize("after", ["", "\n\nText.\n\n```sh\naiokprod --version\n```\n"])
def test_code_that_is_written_in_another_way_is_refused(code: str, after: str) -> None:
    said = refused(f"Text.\n\n{code}{after}")
    assert said and said[0].startswith("line "), code


def test_code_that_is_written_as_it_has_to_be_is_not_refused() -> None:
    lists = "- an item\n  of two lines\n  - an inner one\n    of two lines\n\n  ```sh\n  aiokprod --version\n  ```\n"
    page = f"# Title\n\nText:\n```python\nprint(1)\n```\n\n{lists}\nA ```` ``` ```` and a `<pre>` in text.\n"
    assert refused(page) == []


@pytest.mark.parametrize(
    ("page", "test"), sorted({(page, test) for (page, _), each in CHECKED.items() for test in each})
)
def test_the_test_of_a_block_is_there_and_names_its_page(page: str, test: str) -> None:
    text = (ROOT / test).read_text(encoding="utf-8")
    assert test in (PROGRAMS, COMMANDS, SITE) or page.rpartition("/")[2].removesuffix(".md") in text, f"{test}: {page}"


def test_a_block_of_what_a_program_prints_follows_its_program() -> None:
    for (page, language), tests in CHECKED.items():
        if language == "text" and PROGRAMS in tests:
            source = (ROOT / page).read_text(encoding="utf-8")
            assert len(re.findall(r"^```\n\nIt prints:\n\n```text$", source, re.MULTILINE)) == len(tests), page


def test_the_blocks_without_a_language_are_commands_or_checked_here() -> None:
    for (page, language), tests in CHECKED.items():
        for text, test in zip(texts(page, language), tests, strict=True):
            if test == COMMANDS:
                begins = {line.split()[0] for line in text.splitlines()}
                assert begins <= {"aiokprod", "nox", "pip", "python"}, f"{page}: {begins}"


# ---------------------------------------------------------------------- drawings and listings
@pytest.mark.parametrize(("page", "least"), [("docs/design.md", 60), ("docs/spark_exactly_once.md", 2)])
def test_the_names_of_a_drawing_are_names_of_the_sources(page: str, least: int) -> None:
    names = {name for text in texts(page, "") for name in NAME.findall(text)}
    assert len(names) >= least
    known = set(re.findall(r"\w+", sources()))
    assert names - known == set()


def test_the_listing_of_a_seed_has_the_words_of_the_plugin() -> None:
    (text,) = texts("docs/testing.md", "text")
    said = sources("testing")
    words = ("The faults of the cluster:", "This seed alone:", "--kafka-seed", " that passed.", " fails after ")
    kinds = (
        " leads ",
        "is killed",
        "is back after",
        " owes answers for ",
        "is carried out and never answered",
        "a connection is lost instead of an answer to a",
    )
    for each in (*words, *kinds):
        assert each in text and each.strip() in said, each
    listed = re.findall(r"^E +\d+\.\d{4} s  (.*)$", text, re.MULTILINE)
    assert len(listed) >= 5
    assert [line for line in listed if not any(kind.strip() in line for kind in kinds)] == []


# ---------------------------------------------------------------------- the deployment
def container() -> dict[str, Any]:
    (block,) = blocks(ROOT / "docs" / "how-to" / "deployment.md", "yaml")
    loaded = yaml.safe_load(block.text)
    assert (loaded["apiVersion"], loaded["kind"]) == ("apps/v1", "Deployment")
    assert loaded["spec"]["selector"]["matchLabels"] == loaded["spec"]["template"]["metadata"]["labels"]
    (found,) = loaded["spec"]["template"]["spec"]["containers"]
    return dict(found)


def test_the_variables_of_the_deployment_are_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    secret = tmp_path / "password"
    secret.write_text("a secret")
    for each in container()["env"]:
        value = each.get("value", "shop-7")
        monkeypatch.setenv(each["name"], str(secret) if each["name"].endswith("_FILE") else value)
    config = ProducerConfig.from_env(security_protocol="SASL_SSL", sasl_mechanism="PLAIN", sasl_username="shop")
    assert (config.bootstrap_servers, config.client_id) == ("kafka:9092", "shop-7")
    assert config.sasl_password == Secret("a secret")


def test_the_command_of_the_deployment_is_one_of_uvicorn_on_the_port_that_is_probed() -> None:
    pod = container()
    program, *words = pod["command"]
    assert program == "uvicorn"
    context = uvicorn.main.make_context("uvicorn", list(words))
    ports = {pod[probe]["httpGet"]["port"] for probe in ("readinessProbe", "livenessProbe")}
    assert {context.params["port"]} == ports == {each["containerPort"] for each in pod["ports"]}
    assert context.params["host"] == "0.0.0.0"
