"""The tables of a page, some of which are measured again. Pure."""

from __future__ import annotations

import re


def blocks(page: str) -> dict[str, str]:
    """Return the text under each heading of a page, by heading; "" is what stands above the first one."""
    found = re.split(r"^(##+ .*)$", page, flags=re.MULTILINE)
    return {"": found[0]} | dict(zip(found[1::2], found[2::2], strict=True))


def replaced(before: str, page: str, measured: str) -> str:
    """Return the page before, with the tables that the new page has, and under each of those what `measured` says.

    A table that the page before has not stands where it does in the new page: behind the same table.
    """
    kept = list(blocks(before).items())
    at = 0
    for heading, text in blocks(page).items():
        if not heading:
            continue
        told = f"\n\n{measured}" if measured and heading.startswith("### ") else ""
        block = heading, f"{told}{text.rstrip()}\n\n"
        places = [place for place, (known, _) in enumerate(kept) if known == heading]
        at = places[0] if places else at + 1
        kept[at : at + len(places)] = [block]
    return "".join(heading + text for heading, text in kept).rstrip() + "\n"
