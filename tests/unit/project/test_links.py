"""`nox -s links`: each link that leads elsewhere is followed, and a broken one is told. Here they lead to a local server."""

from __future__ import annotations

import http.server
import json
import runpy
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).resolve().parents[3]


class Pages(http.server.BaseHTTPRequestHandler):
    """One page, with one anchor."""

    def do_GET(self) -> None:
        is_there = self.path.partition("?")[0] == "/there"
        body = b"<html><body><h1 id='place'>There</h1></body></html>" if is_there else b""
        self.send_response(200 if is_there else 404)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    do_HEAD = do_GET

    def log_message(self, format: str, *args: object) -> None:
        """Write nothing."""


@pytest.fixture
def address() -> Iterator[str]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Pages) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("broken", ["", "/away", "/there#nowhere"])
def test_every_link_is_followed_and_a_broken_one_is_told(
    broken: str, address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    source = tmp_path / "pages"
    source.mkdir()
    links = [f"{address}/there", f"{address}/there#place", *([f"{address}{broken}"] if broken else [])]
    (source / "index.md").write_text("# Links\n\n" + "".join(f"- [a link]({link})\n" for link in links))
    follow_links = runpy.run_path(str(ROOT / "docs" / "build.py"))["follow_links"]
    status = follow_links(tmp_path / "told", source)
    told = [json.loads(line) for line in (tmp_path / "told" / "output.json").read_text().splitlines()]
    assert {each["uri"]: each["status"] for each in told} == {
        link: "broken" if broken and link.endswith(broken) else "working" for link in links
    }
    assert (status != 0) == bool(broken)


def test_the_session_follows_the_links_of_all_pages() -> None:
    session = (ROOT / "noxfile.py").read_text(encoding="utf-8").partition("def links(")[2].partition("\n\n\n")[0]
    assert 'install(session, "docs")' in session
    assert 'session.run("python", "docs/build.py", "--links", *session.posargs)' in session
