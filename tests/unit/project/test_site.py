"""The documentation site: it is built without a warning, nothing public is missing in it, and its pages are looked at.

    python tests/unit/project/test_site.py FOLDER page ...

writes screenshots of pages of the site in build/docs (`nox -s docs`) into a folder.
"""

from __future__ import annotations

import asyncio
import functools
import http.server
import json
import re
import subprocess
import sys
import threading
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, Final
from urllib.parse import quote, urlsplit

import pytest
from docs_group import closure, environment, files_outside
from headless_browser import Tab, browser, executable
from sphinx.util.inventory import InventoryFile
from test_public_docstrings import MODULES, names_of

from aiokprod import ProducerConfig, ProducerInterceptor, errors
from aiokprod.errors import AiokprodError

pytestmark = pytest.mark.slow  # the site takes a minute to build; the gate plays this file for every change

ROOT: Final = Path(__file__).resolve().parents[3]
DOCS: Final = ROOT / "docs"
PROJECT: Final[dict[str, Any]] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
LIMIT_S: Final = 300.0
WIDTHS: Final = (390, 1440)
SCHEMES: Final = ("light", "dark")
FOUND_BY_SEARCH: Final = {
    "send": ("reference/api_producer", "aiokprod.Producer.send"),
    "BufferFullError": ("reference/errors", "aiokprod.errors.BufferFullError"),
    "linger.ms": ("reference/options", "linger-ms"),
    "back-pressure": ("explanation/memory", ""),
    "backpressure": ("explanation/memory", ""),
    "dlq": ("dead_letters", ""),
    "dead letter queue": ("dead_letters", ""),
    "windows": ("reference/versions", ""),
    "grafana": ("prometheus", ""),
    "consumer": ("exactly_once", ""),
    "unknown topic": ("how-to/errors_and_retries", ""),
    "partition key": ("sending", ""),
    "docker": ("testing", ""),
    "kubernetes": ("how-to/deployment", ""),
    "errors": ("errors", ""),
}
"""What is searched for, and the place to which one of the first three results leads: an object, or anywhere in a section, or a
page as a whole."""
SCORER: Final = (DOCS / "_ext" / "scorer.js").read_text(encoding="utf-8")
OF_THE_PROJECT: Final = re.findall(r'^  "(\w+)",$', SCORER, re.MULTILINE)
"""The pages for those that work on aiokprod."""
IMPORTED_BUT_INNER: Final = {"aiokprod.wire.messages.produce.ProduceResponse"}
"""What a page shows though it is none of the API: the messages of the protocol, for faults that change them."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the site, as `nox -s docs` does: with the dependency group `docs` and nothing else."""
    folder = tmp_path_factory.mktemp("site")
    group = environment(tmp_path_factory.mktemp("group"), files_outside(closure(PROJECT, "docs")))
    command = [sys.executable, str(DOCS / "build.py"), str(folder)]
    done = subprocess.run(command, cwd=ROOT, env=group, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "WARNING" not in done.stderr
    return folder


def html(site: Path, page: str) -> str:
    return (site / f"{page}.html").read_text(encoding="utf-8")


def section_of(site: Path, page: str, place: str) -> str:
    """Return the section with this id: up to the next one."""
    (section,) = [each for each in html(site, page).split("<section id=") if each.startswith(f'"{place}">')]
    return f"<section id={section}"


def places_of(site: Path, page: str, place: str) -> set[str]:
    """Return this place; if it is a section, also the places in it."""
    if f'<section id="{place}">' not in html(site, page):
        return {place}
    return set(re.findall(r' id="([^"]+)"', section_of(site, page, place)))


# ---------------------------------------------------------------------- what is in it
def test_every_page_is_in_the_tree_of_the_first_page(site: Path) -> None:
    first = html(site, "index")
    pages = {page.relative_to(DOCS).with_suffix("").as_posix() for page in DOCS.rglob("*.md")} - {"index"}
    assert {page for page in pages if f'href="{page}.html"' not in first} == set()
    assert "README" not in pages


def test_every_public_name_is_in_the_reference(site: Path) -> None:
    inventory = InventoryFile.loads((site / "objects.inv").read_bytes(), uri="").data
    known = {name for kind, names in inventory.items() if kind.startswith("py:") for name in names}
    labels: dict[int, set[str]] = {}  # of each public object: it may have several names
    for module in MODULES:
        for name in names_of(import_module(module)):
            labels.setdefault(id(getattr(import_module(module), name)), set()).add(f"{module}.{name}")
    lacking = [sorted(names) for names in labels.values() if not names & known]
    of_errors = {f"aiokprod.{name}" for name in error_names()} | {"aiokprod.errors", "aiokprod.compiled"}
    assert [names for names in lacking if not of_errors & set(names)] == [], "add them to API in docs/_ext/generated.py"
    assert {f"aiokprod.errors.{name}" for name in error_names()} <= known
    assert {f"aiokprod.ProducerInterceptor.{hook}" for hook in hooks()} <= known


def test_every_name_that_a_program_of_a_page_imports_is_in_the_reference(site: Path) -> None:
    inventory = InventoryFile.loads((site / "objects.inv").read_bytes(), uri="").data
    known = {name for kind, names in inventory.items() if kind.startswith("py:") for name in names}
    documented = {id(found) for name in known if (found := object_of(name)) is not None}
    lacking = {
        f"{module}.{name}"
        for page in (ROOT / "README.md", *DOCS.rglob("*.md"))
        for program in re.findall(
            r"^ *```python\n(.*?)^ *```$", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE
        )
        for module, names in re.findall(r"^from (aiokprod[\w.]*) import (\([^)]*\)|.*)$", program, re.MULTILINE)
        for name in re.findall(r"\w+", names)
        if not isinstance(object_of(f"{module}.{name}"), ModuleType)
        and id(object_of(f"{module}.{name}")) not in documented
    }
    assert lacking == IMPORTED_BUT_INNER


def object_of(name: str) -> object:
    """Return what has this name; None if nothing has, or if it is no public object."""
    module, _, last = name.rpartition(".")
    try:
        return getattr(import_module(module), last, None)
    except ImportError:
        return None


def error_names() -> list[str]:
    kinds = (kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, AiokprodError))
    return [kind.__name__ for kind in kinds]


def hooks() -> list[str]:
    return [name for name in vars(ProducerInterceptor) if not name.startswith("_")]


def public_errors(kind: type[AiokprodError]) -> set[type[AiokprodError]]:
    """Return an error of this package and all public ones that derive from it."""
    own = {below for below in kind.__subclasses__() if below.__module__.startswith("aiokprod.")}
    below = {each for child in own for each in public_errors(child)}
    return below if kind.__name__.startswith("_") else below | {kind}


def test_every_error_has_a_section_that_says_what_to_do(site: Path) -> None:
    for path in (ROOT / "aiokprod").rglob("*.py"):
        if re.search(r"^class \w+Error\(", path.read_text(encoding="utf-8"), re.MULTILINE):
            import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))
    sections = html(site, "reference/errors").split("<section id=")
    told = [name for each in sections for name in re.findall(r"<h[23]>(\w+Error)<", each) if "What to do:" in each]
    assert sorted(told) == sorted(kind.__name__ for kind in public_errors(AiokprodError))
    assert {"BufferFullError", "SinkUsageError", "NewerDriverError", "KafkaAdminError"} < set(told)
    assert len(told) >= 55


def test_every_option_has_a_section_with_its_type_default_and_source(site: Path) -> None:
    sections = html(site, "reference/options").split("<section id=")
    page = (DOCS / "configuration.md").read_text(encoding="utf-8")
    units = dict(re.findall(r"^\| `(\w+)` \| [^|]+ \| ([^|]*?) *\|", page, re.MULTILINE))
    for option in ProducerConfig.names():
        (section,) = [
            text for text in sections if f'<span class="pre">{option}</span></code><a class="headerlink"' in text
        ]
        assert all(f"{fact}:" in section for fact in ("Type", "Default", "Must be", "Source")), option
        assert re.findall(r"Unit: ([^<]+)<", section) == [unit for unit in [units[option]] if unit], option


def test_every_hook_of_an_interceptor_is_in_the_table_of_its_page() -> None:
    page = (DOCS / "reference" / "api_interceptors.md").read_text(encoding="utf-8")
    assert re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE) == hooks()


def test_every_command_is_in_the_reference(site: Path) -> None:
    page = html(site, "reference/command_line")
    top = subprocess.run(
        [sys.executable, "-m", "aiokprod", "--help"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    names = re.findall(r"^  (\w[\w-]*)  ", top.stdout.partition("Commands:")[2], re.MULTILINE)
    assert len(names) >= 4
    assert [name for name in names if f"aiokprod {name}" not in re.sub(r"<[^>]+>", "", page)] == []


def test_every_kip_that_the_producer_names_is_in_the_table_and_no_other() -> None:
    own = [path for path in (ROOT / "aiokprod").rglob("*.py") if not {"testing", "messages"} & set(path.parts)]
    named = {kip for path in own for kip in re.findall(r"KIP-\d+", path.read_text(encoding="utf-8"))}
    named |= set(re.findall(r"KIP-\d+", (DOCS / "configuration.md").read_text(encoding="utf-8")))
    page = (DOCS / "reference" / "versions.md").read_text(encoding="utf-8")
    rows = {kip for row in re.findall(r"^\| (KIP-.*?) \|", page, re.MULTILINE) for kip in row.split(", ")}
    assert rows == named


def test_the_changelog_is_not_searched(site: Path) -> None:
    text = (site / "searchindex.js").read_text(encoding="utf-8")
    index = json.loads(text.removeprefix("Search.setIndex(").removesuffix(")"))
    number = index["docnames"].index("CHANGELOG")
    assert index["titles"][number] == ""
    found = [index["terms"][word] for word in ("grafana", "dlq")]
    assert [pages for pages in found if number == pages or (isinstance(pages, list) and number in pages)] == []


def text_of(page: str) -> str:
    """Return the text of a page of HTML."""
    return re.sub(r"<[^>]+>", "", page.partition("<article")[2].partition("</article>")[0])


def test_no_two_pages_have_one_title(site: Path) -> None:
    pages = [page.relative_to(DOCS).with_suffix("").as_posix() for page in DOCS.rglob("*.md")]
    titles: dict[str, list[str]] = {}
    for page in pages:
        (title,) = re.findall(r"<h1>(.*?)<a class", html(site, page))
        titles.setdefault(re.sub(r"<[^>]+>|^(the|all|a) ", "", title.lower()), []).append(page)
    assert [pages for pages in titles.values() if len(pages) > 1] == []


def test_the_first_page_is_one_of_its_own(site: Path) -> None:
    first = html(site, "index")
    headings = re.findall(r"<h2>(.*?)<a class", first)
    assert headings == [
        "A first program",
        "What a send says",
        "Where to go on",
        "What do I consume with?",
        "All pages",
    ]
    assert "18,000 tests" not in first
    for client in ("aiokafka", "confluent-kafka"):
        assert client in section_of(site, "index", "what-do-i-consume-with"), client


def test_pages_of_users_name_neither_sessions_of_nox_nor_files_of_tests(site: Path) -> None:
    others = {*OF_THE_PROJECT, "CHANGELOG", "SECURITY", "performance"}
    pages = {page.relative_to(DOCS).with_suffix("").as_posix() for page in DOCS.rglob("*.md")}
    assert others <= pages
    named = {page: re.findall(r"\bnox\b|\btests/\w+", text_of(html(site, page))) for page in pages - others}
    assert {page: found for page, found in named.items() if found} == {}


def test_no_link_has_the_name_of_a_file_as_its_text(site: Path) -> None:
    pages = {page.relative_to(site).as_posix(): page.read_text(encoding="utf-8") for page in site.rglob("*.html")}
    named = {name: re.findall(r"<a [^>]*>(?:<[^>]+>)*([\w/-]+\.md)<", page) for name, page in pages.items()}
    assert {name: found for name, found in named.items() if found} == {}


def test_the_table_of_the_configuration_leads_to_each_option(site: Path) -> None:
    page = html(site, "configuration")
    for option in ProducerConfig.names():
        assert f'href="reference/options.html#{option.replace("_", "-")}"' in page, option


# ---------------------------------------------------------------------- links
def test_links_lead_to_pages_and_places_that_are_there(site: Path) -> None:
    places = {
        page: set(re.findall(r' id="([^"]+)"', page.read_text(encoding="utf-8"))) for page in site.rglob("*.html")
    }
    checked = 0
    for page in places:
        for link in re.findall(r'<(?:a|img|link)\b[^>]*? (?:href|src)="([^"]*)"', page.read_text(encoding="utf-8")):
            parts = urlsplit(link.replace("&amp;", "&"))
            if parts.scheme:
                assert parts.scheme in ("http", "https", "mailto") and (parts.netloc or parts.path), f"{page}: {link}"
                continue
            target = (page.parent / parts.path).resolve() if parts.path else page
            assert target.exists(), f"{page}: {link}"
            if parts.fragment and target.suffix == ".html":
                assert parts.fragment in places[target], f"{page}: {link}"
            checked += 1
    assert checked > 1_000


# ---------------------------------------------------------------------- looked at
@contextmanager
def served(folder: Path) -> Iterator[str]:
    """Serve a folder on a free port; yield its address."""

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_: Any) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(folder))) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture
def chromium() -> str:
    path = executable()
    if path is None:
        pytest.skip("no Chromium: apt-get install chromium; AIOKPROD_REQUIRE_BROWSER=1 makes this an error")
    return path


LOOK: Final = """
(() => {
  const wide = document.documentElement.scrollWidth - document.documentElement.clientWidth;
  const broken = [...document.images].filter(each => !each.complete || each.naturalWidth === 0).map(each => each.src);
  const shown = getComputedStyle(document.body).backgroundColor;
  const plots = [...document.images].filter(each => each.src.endsWith('.svg'));
  const turned = plots.filter(each => getComputedStyle(each).filter !== 'none').length;
  const tables = [...document.querySelectorAll('.table-wrapper')].filter(each => each.scrollWidth > each.clientWidth + 1);
  return {wide, broken, shown, plots: plots.length, turned, tables: tables.length};
})()
"""


async def looked_at(tab: Tab, address: str, pages: list[str]) -> list[str]:
    """Open each page at each width and in each scheme; return what is wrong."""
    wrong = []
    for page in pages:
        await tab.look(WIDTHS[0], SCHEMES[0])
        await tab.open(f"{address}/{page}.html")
        colours = set()
        for width in WIDTHS:
            for scheme in SCHEMES:
                await tab.look(width, scheme)
                seen = await tab.evaluate(LOOK)
                colours.add((scheme, seen["shown"]))
                if seen["wide"] > 0:
                    wrong.append(f"{page} at {width}: {seen['wide']} pixels too wide")
                wrong += [f"{page}: no image {image}" for image in seen["broken"]]
                if seen["turned"] != (seen["plots"] if scheme == "dark" else 0):
                    wrong.append(f"{page}: {seen['turned']} of {seen['plots']} plots are dark, {scheme}")
                if seen["tables"] and width == WIDTHS[-1] and page not in {*OF_THE_PROJECT, "performance"}:
                    wrong.append(f"{page} at {width}: {seen['tables']} tables are cut")
        if len({colour for _, colour in colours}) != len(SCHEMES):
            wrong.append(f"{page}: light and dark are not two: {colours}")
    return wrong


async def found(tab: Tab, address: str, words: str) -> list[str]:
    """Return where the results of the site's search lead, in their order."""
    await tab.open(f"{address}/search.html?q={quote(words)}")
    script = """
    new Promise(done => {
      const look = left => {
        const summary = document.querySelector('#search-results p.search-summary, #search-results p');
        const links = [...document.querySelectorAll('#search-results li a')].map(each => each.href);
        const is_done = summary && /Search finished|found/.test(summary.textContent) && links.length;
        is_done || left === 0 ? done(links) : setTimeout(look, 20, left - 1);
      };
      look(500);
    })
    """
    links: list[str] = await tab.evaluate(script)
    return links


@pytest.mark.slow
def test_pages_fit_into_their_window_have_their_images_and_are_found_by_search(site: Path, chromium: str) -> None:
    pages = sorted(page.relative_to(site).with_suffix("").as_posix() for page in site.rglob("*.html"))
    assert len(pages) > 50

    async def scenario() -> None:
        with served(site) as address:
            async with browser(chromium) as tab:
                assert await looked_at(tab, address, pages) == []
                await tab.open(f"{address}/tutorial.html")
                assert await tab.evaluate("document.querySelectorAll('.highlight-sh .copybtn').length") >= 4
                assert await tab.evaluate("document.querySelectorAll('.highlight-text .copybtn').length") == 0
                for words, (page, place) in FOUND_BY_SEARCH.items():
                    links = await found(tab, address, words)
                    is_theirs = [link.removeprefix(f"{address}/").split(".")[0] in OF_THE_PROJECT for link in links]
                    assert is_theirs == sorted(is_theirs), f"{words}: pages of the project are not the last: {links}"
                    wanted = {f"{address}/{page}.html#{each}" for each in places_of(site, page, place)}
                    if not place:
                        wanted = {link for link in links if link.partition("#")[0] == f"{address}/{page}.html"}
                    assert wanted & set(links[:3]), f"{words}: {links[:6]}"

    asyncio.run(scenario())


@pytest.mark.slow
def test_a_page_that_is_too_wide_or_has_a_broken_image_is_found(tmp_path: Path, chromium: str) -> None:
    (tmp_path / "bad.html").write_text('<div style="width: 5000px">wide</div><img src="none.png">', encoding="utf-8")

    async def scenario() -> list[str]:
        with served(tmp_path) as address:
            async with browser(chromium) as tab:
                return await looked_at(tab, address, ["bad"])

    wrong = asyncio.run(scenario())
    assert any("too wide" in line for line in wrong)
    assert any("no image" in line for line in wrong)
    assert any("light and dark are not two" in line for line in wrong)


def test_a_browser_that_is_required_and_missing_is_an_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("AIOKPROD_REQUIRE_BROWSER", raising=False)
    assert executable() is None
    monkeypatch.setenv("AIOKPROD_REQUIRE_BROWSER", "1")
    with pytest.raises(RuntimeError, match="apt-get install chromium"):
        executable()


if __name__ == "__main__":

    async def screenshots(target: Path, pages: list[str]) -> None:
        with served(ROOT / "build" / "docs") as address:
            async with browser(executable() or "chromium") as tab:
                for page in pages:
                    for width in WIDTHS:
                        for scheme in SCHEMES:
                            await tab.look(width, scheme)
                            await tab.open(f"{address}/{page}.html")
                            await tab.screenshot(target / f"{page.replace('/', '_')}-{width}-{scheme}.png")

    asyncio.run(screenshots(Path(sys.argv[1]), sys.argv[2:]))
