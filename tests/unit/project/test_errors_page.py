"""docs/errors.md: every error of ours, with what the code says of it. docs/sending.md: its program runs."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

from aiokprod import Producer, errors
from aiokprod.errors import AiokprodError, ColumnsReport, SendColumnsError, SendManyError, SendReport
from aiokprod.model import InTransaction, Persistence

DOCS = Path(__file__).resolve().parents[3] / "docs"
KINDS = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, AiokprodError)]


def made(kind: type[AiokprodError], persistence: Persistence | None) -> AiokprodError:
    if kind is SendManyError:
        return SendManyError(SendReport(delivered=0))
    if kind is SendColumnsError:
        return SendColumnsError(ColumnsReport())
    return kind("x", persistence=persistence)


def row(kind: type[AiokprodError]) -> str:
    """Return the page's row of an error."""
    parents = " and ".join(f"`{base.__name__}`" for base in kind.__bases__)
    meaning = (kind.__doc__ or "").partition("\n")[0]
    if kind.default_persistence is not None:
        persistence = f"`{kind.default_persistence.name}`"
    elif issubclass(kind, errors.DeliveryError):
        persistence = "of each record"
    else:
        persistence = ""
    always = made(kind, Persistence.POSSIBLY_PERSISTED).retriable
    if_not_persisted = made(kind, Persistence.NOT_PERSISTED).retriable
    again = "yes" if always else "if `NOT_PERSISTED`" if if_not_persisted else "no"
    step = f"`{kind.in_transaction.name}`"
    return f"| `{kind.__name__}` | {parents} | {meaning} | {persistence} | {again} | {step} |"


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_the_page_says_of_each_error_what_the_code_says(kind: type[AiokprodError]) -> None:
    assert row(kind) in (DOCS / "errors.md").read_text(encoding="utf-8").splitlines()


def test_the_page_says_what_each_step_in_a_transaction_is() -> None:
    page = (DOCS / "errors.md").read_text(encoding="utf-8")
    assert re.findall(r"^\| `([A-Z_]+)` \|", page, re.MULTILINE) == [step.name for step in InTransaction]


def test_the_page_has_no_error_that_is_not_there() -> None:
    page = (DOCS / "errors.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^\| `(\w+Error)` \|", page, re.MULTILINE)) == {kind.__name__ for kind in KINDS}


def test_the_first_program_of_sending_runs_and_prints_what_the_page_says() -> None:
    page = (DOCS / "sending.md").read_text(encoding="utf-8")
    program, *_ = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    printed, *_ = re.findall(r"^```text\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert (ran.returncode, ran.stdout) == (0, printed), ran.stderr


def test_the_page_of_sending_has_every_argument_of_send() -> None:
    page = (DOCS / "sending.md").read_text(encoding="utf-8")
    table = page.partition("\n| argument | meaning |\n|---|---|\n")[2].partition("\n\n")[0]
    named = [name for row in table.splitlines() for name in re.findall(r"`(\w+)`", row.split("|")[1])]
    assert sorted(named) == sorted(set(inspect.signature(Producer.send).parameters) - {"self"})
