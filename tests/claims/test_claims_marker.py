"""The marker of a start: one for each, and what is open stays told as open."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from aiokprod.claims.marker import Facts, Marker

PLAIN = "_run-0000000000000007-1.json"


def begun(folder: Path, token: str) -> Marker:
    made = Marker(folder, 7, 1, token)
    made.begin()
    return made


def told(folder: Path) -> dict[str, bool]:
    """Return the markers in a folder, and whether each is closed."""
    return {path.name: Facts.read(path).closed for path in folder.iterdir()}


def test_a_start_after_a_clean_end_goes_on_with_its_counts(tmp_path: Path) -> None:
    begun(tmp_path, "a").write(closed=True, rows=5, dropped=2, files=1)
    assert Marker(tmp_path, 7, 1, "b").begin() == Facts(run=7, stream=1, closed=True, rows=5, dropped=2, files=1)
    assert told(tmp_path) == {PLAIN: False}
    assert Facts.read(tmp_path / PLAIN).rows == 5


def test_a_start_that_finds_another_one_open_has_a_marker_of_its_own(tmp_path: Path) -> None:
    first = begun(tmp_path, "a")
    second = Marker(tmp_path, 7, 1, "b")
    assert second.begin().rows == 0
    own = PLAIN.replace(".json", "-b.json")
    assert told(tmp_path) == {PLAIN: False, own: False}
    second.write(closed=True, rows=10, dropped=0, files=1)
    assert told(tmp_path) == {PLAIN: False, own: True}
    first.write(closed=True, rows=20, dropped=0, files=1)
    assert told(tmp_path) == {PLAIN: True, own: True}


def test_an_empty_marker_is_not_taken_over(tmp_path: Path) -> None:
    (tmp_path / PLAIN).touch()
    begun(tmp_path, "b")
    assert (tmp_path / PLAIN).read_bytes() == b""
    assert (tmp_path / PLAIN.replace(".json", "-b.json")).exists()


def test_two_that_take_over_at_once_do_not_share_a_marker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun(tmp_path, "a").write(closed=True, rows=5, dropped=0, files=1)
    read = Facts.read
    others: list[Marker] = []

    def read_and_be_late(path: Path) -> Facts:
        facts = read(path)
        if not others:  # between the look at the marker and its taking, another start takes it
            others.append(Marker(tmp_path, 7, 1, "b"))
            others[0].begin()
        return facts

    monkeypatch.setattr(Facts, "read", read_and_be_late)
    assert Marker(tmp_path, 7, 1, "c").begin().rows == 0
    monkeypatch.undo()
    assert told(tmp_path) == {PLAIN: False, PLAIN.replace(".json", "-c.json"): False}
    assert Facts.read(tmp_path / PLAIN).rows == 5


@pytest.mark.parametrize(
    "content",
    ["", "{", "[]", "3", "{}", '{"run": 1}', '{"run":1,"stream":0,"closed":true,"rows":"9","dropped":0,"files":1}',
     '{"run":1,"stream":0,"closed":1,"rows":9,"dropped":0,"files":1}'],
)  # fmt: skip
def test_what_is_no_marker_is_a_value_error(content: str, tmp_path: Path) -> None:
    (tmp_path / "m").write_text(content)
    with pytest.raises(ValueError, match=r"marker|Expecting"):
        Facts.read(tmp_path / "m")


def test_a_marker_and_its_folder_are_synced_before_and_after_it_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: synced.append(kind_of(descriptor, tmp_path)))
    begun(tmp_path, "a")
    assert synced == ["the marker, under another name", "the folder with the marker"]


def kind_of(descriptor: int, folder: Path) -> str:
    """Return what is synced, and what the folder then holds."""
    found = os.fstat(descriptor)
    names = sorted(path.name for path in folder.iterdir())
    if os.path.samestat(found, folder.stat()):
        content = json.loads((folder / PLAIN).read_text())
        return "the folder with the marker" if content["closed"] is False else "the folder"
    assert names == [f".{PLAIN}.a.tmp", PLAIN]
    return "the marker, under another name" if (folder / PLAIN).read_bytes() == b"" else "the marker"


def test_a_link_that_lies_at_a_name_of_ours_is_not_written_through(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("as it was")
    folder = tmp_path / "claims"
    folder.mkdir()
    (folder / f".{PLAIN}.a.tmp").symlink_to(victim)
    (folder / PLAIN).symlink_to(victim)
    begun(folder, "a")
    assert victim.read_text() == "as it was"
