"""`ClassicRebalance`: the way of a classic group from one generation to the next, and its timers.

Invariants: a member that waits for an answer has no deadline, unless it is new; in Stable nothing waits.
"""

from __future__ import annotations

from abc import ABC

from aiokprod.testing.mock.groups.classic_members import ClassicMember, Joined, Synced
from aiokprod.testing.mock.groups.classic_roster import ClassicRoster, GroupState
from aiokprod.testing.mock.groups.protocols import chosen_protocol
from aiokprod.wire.codes import ErrorCode


class ClassicRebalance(ClassicRoster, ABC):
    """Rebalances: prepared, completed when all have joined or their time is over, and after a loss of members."""

    def _rebalance_or_complete(self, now: float) -> None:
        if self.state is GroupState.PREPARING:
            self._complete_if_all_joined(now)
        else:
            self._prepare(now)

    def _prepare(self, now: float) -> None:
        if self.state is GroupState.COMPLETING:
            for member in self.members.values():
                member.assignment = b""
                self._answer_sync(member, Synced(code=ErrorCode.REBALANCE_IN_PROGRESS), now)
        self._sync_deadline = None
        self._is_first_rebalance = self.state is GroupState.EMPTY
        self.state = GroupState.PREPARING
        if not self._is_first_rebalance:
            self._join_deadline = now + self._rebalance_s
            self._complete_if_all_joined(now)
            return
        delay = self._settings.group_initial_rebalance_delay_ms / 1000
        self._has_newcomer = False
        self._delay_left_s = max(self._rebalance_s - delay, 0.0)
        self._join_deadline = now + delay
        if delay == 0:
            self._complete(now)

    @property
    def _rebalance_s(self) -> float:
        return max((member.rebalance_s for member in self.members.values()), default=0.0)

    def _complete_if_all_joined(self, now: float) -> None:
        if self.state is not GroupState.PREPARING or self._is_first_rebalance or self.pending:
            return
        if all(member.join_reply is not None for member in self.members.values()):
            self._complete(now)

    def _join_time_is_over(self, now: float) -> None:
        if self._is_first_rebalance and self._has_newcomer and self._delay_left_s > 0:
            delay = self._settings.group_initial_rebalance_delay_ms / 1000
            self._join_deadline = now + min(delay, self._delay_left_s)
            self._delay_left_s = max(self._delay_left_s - delay, 0.0)
            self._has_newcomer = False
        else:
            self._complete(now)

    def _complete(self, now: float) -> None:
        """Begin the next generation with the members that have joined."""
        self._join_deadline = None
        self._is_first_rebalance = False
        for member in [one for one in self.members.values() if one.join_reply is None and one.instance_id is None]:
            self._forget(member)
        leader = self.members.get(self.leader or "")
        if leader is not None and leader.join_reply is None:  # static, and not back yet
            awake = next((one for one in self.members.values() if one.join_reply is not None), None)
            if awake is None:
                self._join_deadline = now + self._rebalance_s
                return
            self.leader = awake.member_id
        self.generation += 1
        if not self.members:
            self.state, self.protocol, self.leader = GroupState.EMPTY, None, None
            self._store()
            return
        self.protocol = chosen_protocol(self.members.values())
        self.state = GroupState.COMPLETING
        self._unsynced = set(self.members)
        self._sync_deadline = now + self._rebalance_s
        for member in list(self.members.values()):
            if member.join_reply is None:
                continue  # static: its session goes on
            member.answer_join(self._joined(member))
            self._touch(member, now)

    def _after_loss(self, of_members: bool, now: float) -> None:
        if self.state is GroupState.PREPARING:
            self._complete_if_all_joined(now)
        elif of_members and self.state is not GroupState.EMPTY:
            self._prepare(now)

    def _joined(self, member: ClassicMember) -> Joined:
        """Return the answer about the generation at hand."""
        is_leader = member.member_id == self.leader
        return Joined(
            member_id=member.member_id,
            generation=self.generation,
            protocol_type=self.protocol_type,
            protocol=self.protocol,
            leader=self.leader or "",
            members=tuple(
                (one.member_id, one.instance_id, one.metadata(self.protocol)) for one in self.members.values()
            )
            if is_leader
            else (),
        )

    def _answer_sync(self, member: ClassicMember, synced: Synced, now: float) -> None:
        if member.sync_reply is not None:
            member.answer_sync(synced)
            self._touch(member, now)

    # ------------------------------------------------------------------ the clock

    def next_deadline(self) -> float | None:
        """Return when `tick` has something to do; None: as things are, never."""
        times = [member.deadline for member in self.members.values()]
        times += [self._join_deadline, self._sync_deadline, *self.pending.values()]
        return min((time for time in times if time is not None), default=None)

    def tick(self, now: float) -> None:
        """Carry out the work that is due."""
        forgotten = [name for name, time in self.pending.items() if time <= now]
        for name in forgotten:
            del self.pending[name]
        silent = [one for one in self.members.values() if one.deadline is not None and one.deadline <= now]
        for member in silent:
            self._forget(member)
        if forgotten or silent:
            self._after_loss(bool(silent), now)
        if self._join_deadline is not None and self._join_deadline <= now:
            self._join_time_is_over(now)
        if self._sync_deadline is not None and self._sync_deadline <= now:
            self._sync_deadline = None
            unsynced = [member for name, member in self.members.items() if name in self._unsynced]
            for member in unsynced:
                self._forget(member)
            if unsynced:
                self._prepare(now)
