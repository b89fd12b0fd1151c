"""The gate: what is checked for every change (`.ci/run`), and the long run before an issue is called done (`nox -s long`).

`PYTHONPATH=tests python -m gate change` and `... long` run it. Only the standard library is needed: the steps make their own
environments. docs/CONTRIBUTING.md says in one table what runs when.

```
__main__      the command line
change        the steps of every change
long_run      the steps of the long run, and which of them are left
steps         one step: a header, its commands, what it took; programs beside others
second_try    tests that failed: played once more at the end, or final
pytest_step   a pytest run as a step: its failures come back as data
failures      pure: may a failed test be played once more, and is the run red?
shards        pure: which tests belong to which shard, and which shard a commit plays
record        what passed on which commit, outside git
environments  virtual environments, wheels, programs of the system
plugin        the part inside pytest: it selects a shard, senses clocks and sockets, writes failures down
```
"""
