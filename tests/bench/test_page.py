"""Some tables of docs/performance.md are measured again, the others stay."""

from __future__ import annotations

from page import blocks, replaced

BEFORE = """# Performance

date: 1.

## Sends

Of sends.

### One

| 1 |

### Two

| 2 |

## Ends

Of ends.

### Three

| 3 |
"""


def test_the_blocks_of_a_page_are_the_page() -> None:
    found = blocks(BEFORE)
    assert list(found) == ["", "## Sends", "### One", "### Two", "## Ends", "### Three"]
    assert "".join(heading + text for heading, text in found.items()) == BEFORE


def test_what_was_measured_again_says_so_and_the_rest_stays() -> None:
    page = "# Performance\n\ndate: 2.\n\n## Sends\n\nOf all sends.\n\n### Two\n\n| two |\n"
    expected = BEFORE.replace("Of sends.", "Of all sends.").replace("| 2 |", "date: 2.\n\n| two |")
    assert replaced(BEFORE, page, "date: 2.") == expected
    assert replaced(expected, page, "date: 2.") == expected


def test_a_new_table_stands_behind_the_same_one_as_in_the_new_page() -> None:
    page = "# Performance\n\n## Sends\n\nOf sends.\n\n### One\n\n| 1 |\n\n### Four\n\n| 4 |\n"
    assert list(blocks(replaced(BEFORE, page, "date: 2."))) == [
        "", "## Sends", "### One", "### Four", "### Two", "## Ends", "### Three",
    ]  # fmt: skip
