"""Swarm exploration of the whole producer: each seed draws a world as plain data, plays it in virtual time, judges it.

values.py    what a world is             draw*.py  from a seed to a world      shrink.py  to the smallest that fails
themes.py    wide themes: features that make trouble together; a seed's other features are drawn independently
themes_narrow.py  small dense worlds for rare coincidences, one seed in four; narrow*.py draws them
narrow_transactions.py  worlds of transactions, one seed in twenty; transacts.py plays them, judge_transactions.py judges them
process.py   faults of the process: exceptions at any point, finalizers, threads, log handlers, in one seed of twenty;
draw_process.py draws them into a world of any other theme
play.py      one world, from start to end; its operations are in sends.py, bulks.py and lives.py, its faults in trouble.py
books.py     what was asked and told     judge*.py what of it is wrong         __main__.py replays, shrinks, counts
judge_liveness.py  whether each producer goes on when all faults are over
"""

from __future__ import annotations
