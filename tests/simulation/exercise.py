"""The newcomer's exercise (docs/CONTRIBUTING.md): a bug of the retry path is put into the sources, and has to be found.

    python tests/simulation/exercise.py 1        puts bug 1 into the sources and prints what a user reports
    python tests/simulation/exercise.py --check  says whether the sources are as they were before
    python tests/simulation/exercise.py --undo   takes out what is left of it

Reading this file spoils the exercise.
"""

from __future__ import annotations

import sys

from swarm.without.patching import Change, Defect, source_of, sources_with

BUGS = (
    Defect(
        "1",
        "A broker was restarted under load. Most sends succeeded later; some never got an outcome, and `flush()` never ended.",
        (
            Change(
                "pipeline.broker.flusher",
                "fates.setdefault(queue, []).append((entry, attempt, written))",
                "fates[queue] = [(entry, attempt, written)]",
            ),
        ),
        ("never settled",),
    ),
    Defect(
        "2",
        "The leader of a partition moved while a broker kept its old connections. Since then the old leader is asked again and"
        " again, and answers NOT_LEADER_OR_FOLLOWER; with five requests in flight some records arrived in another order.",
        (
            Change(
                "pipeline.broker.retry",
                "        if old is not None:\n            old.aggregator.remove(queue)\n",
                "        if old is not None and queue.ledger.node < 0:\n            old.aggregator.remove(queue)\n",
            ),
        ),
        ("reordered",),
    ),
    Defect(
        "3",
        "Some records are in the topic twice. Each time the connection had ended twice in a row, the second time as soon as it"
        " was open, and the partition was then given a new producer epoch.",
        (
            Change(
                "pipeline.partition.ledger",
                "            entry.is_ambiguous |= (\n                written  #",
                "            entry.is_ambiguous = (\n                written  #",
            ),
        ),
        ("doubled",),
    ),
)


def main(arguments: list[str]) -> str:
    """Run the command line; return what to print."""
    if arguments == ["--undo"]:
        return "\n".join(undone(bug) for bug in BUGS)
    if arguments == ["--check"]:
        return "\n".join(f"bug {bug.name}: {'there' if is_there(bug) else 'not in the sources'}" for bug in BUGS)
    bug = next((bug for bug in BUGS if [bug.name] == arguments), None)
    if bug is None:
        return __doc__ or ""
    for module, text in sources_with(bug).items():
        source_of(module).write_text(text)
    return f"A user reports: {bug.what}"


def is_there(bug: Defect) -> bool:
    """Return whether one of the places of a bug is not as it was."""
    return any(change.now not in source_of(change.module).read_text() for change in bug.changes)


def undone(bug: Defect) -> str:
    """Take a bug out of the sources, if it is there; return what was done."""
    for change in bug.changes:
        path = source_of(change.module)
        text = path.read_text()
        if change.then in text:
            path.write_text(text.replace(change.then, change.now))
            return f"bug {bug.name}: taken out"
    return f"bug {bug.name}: not in the sources"


if __name__ == "__main__":
    print(main(sys.argv[1:]))
