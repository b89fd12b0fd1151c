"""Transactions of the mock cluster: the coordinator's state machine, where coordinators are, offsets, markers, the index.

Handlers call `Transactions`; everything else here is pure.
"""
