"""Mends taken out, one at a time: how many seeds the swarm needs until it finds the defect that is back.

patching.py   a defect as text that is put back into a module     defects_*.py  which there are, and what they make wrong
hunting.py    seeds until found, the table                        __main__.py   plays worlds with one mend taken out

`python tests/simulation/swarm --without all` prints the table. What no world can show is in `defects.py`, with the reason.
"""

from __future__ import annotations
