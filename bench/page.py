"""The tables of a page, some of which are measured again. Pure."""

from __future__ import annotations

import re


def blocks(page: str) -> dict[str, str]:
    """Return the text under each heading of a page, by heading; "" is what stands above the first one."""
    found = re.split(r"^(##+ .*)$", page, flags=re.MULTILINE)
    return {"": found[0]} | dict(zip(found[1::2], found[2::2], strict=True))


def replaced(before: str, page: str, measured: str) -> str:
    """Return the page before, with the tables that the new page has, and under each of those what `measured` says.

    Raises:
        SystemExit: the new page has a table that the one before has not, so nothing says where it belongs.
    """
    kept = blocks(before)
    for heading, text in blocks(page).items():
        if heading.startswith("### "):
            if heading not in kept:
                raise SystemExit(f"the page has no {heading!r}: measure all items")
            kept[heading] = f"\n\n{measured}{text.rstrip()}\n\n"
        elif heading:
            kept[heading] = text.rstrip() + "\n\n"
    return "".join(heading + text for heading, text in kept.items()).rstrip() + "\n"
