"""One node: what it knows, in memory and on disk, and the verdict that follows.

Every loop of the agent meets here and nowhere else. What they bring is judged at once (`learn`,
`obey`, `look`), in this order: detect → verdict file for the gate → one transaction → wake the
shipper. The file for the gate comes before the disk, since refusing early is safe; shipping comes
after it, since what was shipped must not be forgotten.

A disk that fails never stops the agent: it goes on with a copy in memory (agent/disk.py), says so
in its verdict, which is then UNKNOWN unless it is FAULT, and moves back when the disk is well again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from datetime import timedelta

import msgspec
import structlog

from komainu.agent.checks import CHECKS, GpuBaseline, Look
from komainu.agent.disk import Disk
from komainu.agent.left import LEFT, Left, left_by
from komainu.agent.place import Cursor, Place
from komainu.agent.publish import VerdictFiles
from komainu.agent.spool import Active, Spool, told_apart
from komainu.core.decision import Order, OrderKind
from komainu.core.errors import StorageError
from komainu.core.gate import write_verdict
from komainu.core.names import NodeKey, stable_id
from komainu.core.node import NodePolicy, NodeVerdict, graded
from komainu.core.observation import Finding, Observation, ObservationKind, Scalar
from komainu.core.verdict import Verdict
from komainu.core.wire import Hardware
from komainu.health.detect import Memory, detect
from komainu.ports import Clock
from komainu.quarantine.collect import GateOffset
from komainu.quarantine.decide.verdict import OrdersState, apply_order, node_verdict, policy_of

log = structlog.get_logger()

SPOOL, STATE_COPY, RUN_DIR = "spool", "state-dir", "run-dir"
"""What can fail under the agent itself; each shows as a check of that name while it does."""

START_S = 3.0
"""Bound on the first look; below the age at which a verdict is stale (ttl_s)."""
CARRIED_BY_A_CHECK = frozenset({"HOST-KMSG-UNREADABLE"})
"""Findings that are told and do not weigh: the check of that condition does, and ends with it."""


class Node:
    """What one node knows of itself."""

    memory: Memory
    cursor: Cursor
    orders: OrdersState
    gate: GateOffset
    baseline: GpuBaseline
    previous: Cursor
    """Cursor of the boot before while its last lines have not been judged, else empty."""
    active: dict[str, Active]
    left: Left

    def __init__(
        self, key: NodeKey, boot_id: str, place: Place, clock: Clock, *, alone: bool
    ) -> None:
        self.key, self.boot_id, self._place, self._clock = key, boot_id, place, clock
        self.alone = alone
        """No server: nothing to ship to, nobody to confirm a fault."""
        self.log = log.bind(cluster=key.cluster, node=key.node)
        self.to_ship, self.copy_due = asyncio.Event(), asyncio.Event()
        self.to_look = asyncio.Event()
        """A job has ended, or the node was released: what is said of it must be seen to be true."""
        self.looks: dict[str, Look] = {}
        self.trouble: dict[str, str] = {}
        self._heard = False
        """The server has answered this run: its orders are known."""
        self.checking = False
        self.hardware: Hardware | None = None
        self.server_ahead: timedelta | None = None
        self._files = VerdictFiles(place.run_dir, place.state_dir)
        self._began_s = clock.uptime_s()
        self._kept: dict[str, msgspec.Struct] = {}
        """The state as it was last kept: only what is not the same object is written again."""
        self.disk = Disk(place.spool, place.spool_max_bytes, self.log)
        self._load()
        self.verdict: NodeVerdict = self._judge()

    # ── what the loops bring ─────────────────────────────────────────────────────────────────────

    def learn(
        self,
        observations: Sequence[Observation],
        *,
        findings: Sequence[Finding] = (),
        cursor: Cursor | None = None,
        gate: GateOffset | None = None,
        baseline: GpuBaseline | None = None,
        previous: Cursor | None = None,
    ) -> None:
        """Judge what was seen and keep it, together with how far its source has been read."""
        memory, concluded = detect(self.memory, observations)
        known = self.active.keys() | self.orders.released
        fresh = {f.id: f for f in (*findings, *concluded) if f.id not in known}
        now = self._clock.now()
        active = {
            f.id: Active(finding=f, known_since=now) for f in fresh.values() if self._matters(f)
        }
        self.active |= active
        self.memory = memory
        self.cursor = cursor or self.cursor
        self.gate = gate or self.gate
        self.baseline = baseline or self.baseline
        self.previous = previous or self.previous
        for finding in fresh.values():
            self.log.warning(
                "finding_concluded",
                code=finding.code,
                component=str(finding.component),
                id=finding.id,
            )
        if active:
            self.publish()
        self._keep(
            observations=told_apart(observations, concluded),
            findings=list(fresh.values()),
            active=list(active.values()),
        )
        self.to_ship.set()

    def obey(self, orders: Sequence[Order]) -> None:
        """Fold orders in and keep them; only then are they acknowledged (`orders.seen`)."""
        before, state = self.orders, self.orders
        restamped: list[Active] = []
        for order in sorted(orders, key=lambda one: one.number):
            after = apply_order(state, order)
            if after is state:
                if order.number > state.seen:
                    self.log.warning("orders_missing", seen=state.seen, after=order.previous)
                continue
            if order.kind is OrderKind.POLICY and policy_of(order) is None:
                self.log.error("policy_not_understood", number=order.number)
            if state.advise and not after.advise:
                # The guard is ready again: what it had not allowed asks anew, not all at once.
                now = self._clock.now()
                restamped = [
                    msgspec.structs.replace(one, known_since=now) for one in self.active.values()
                ]
            if order.kind is OrderKind.RELEASE:
                self.to_look.set()
            self.log.info("order_applied", number=order.number, kind=str(order.kind))
            state = after
        if state is before:
            return
        self.orders = state
        self.active |= {one.finding.id: one for one in restamped}
        closed = self.active.keys() & state.released
        for id_ in closed:
            del self.active[id_]
        self._keep(
            active=[one for one in restamped if one.finding.id not in closed],
            closed=closed,
        )
        self.publish()

    def tell_again(self) -> None:
        """Queue every finding the verdict rests on once more: the server knows none of them, because
        its database was restored or this node had no server when it found them.
        """
        self.log.warning("findings_told_again", count=len(self.active))
        self._keep(findings=[one.finding for one in self.active.values()])
        if self.spool.parcel(1).findings:  # else the server has refused to take them
            self.to_ship.set()

    def see(self, looks: Mapping[str, Look | None]) -> None:
        """Note what checks found, by name; None for one that no longer applies."""
        for check, look in looks.items():
            if look is None:
                self.looks.pop(check, None)
            else:
                self._note(check, look)
        self._let_go()
        self.publish()

    def heard(self) -> None:
        """The server has answered, and its orders have been obeyed. Once this run has looked, too,
        both have spoken who can say what is wrong with the node.
        """
        self._heard = True
        if self._let_go():
            self.publish()

    def _let_go(self) -> bool:
        well_known = self._heard and set(CHECKS) <= self.looks.keys()
        return well_known and self.accept_state()

    def accept_state(self) -> bool:
        """Let go of the FAULT the last run left without its reasons; whether there was one."""
        if not self.left.fault:
            return False
        self.log.info("left_verdict_dropped", said=self.left.fault)
        self.left = Left()
        self._keep()
        return True

    def _note(self, check: str, look: Look) -> None:
        before = self.looks.get(check)
        if before is None or before.verdict is not look.verdict:
            self.log.info(
                "check_changed", check=check, verdict=str(look.verdict), detail=look.detail
            )
        self.looks[check] = look

    def say(self, event: str, **data: Scalar) -> None:
        """An observation of the agent about itself."""
        self._keep(observations=[self._spoken(event, data)])
        self.to_ship.set()

    def _spoken(self, event: str, data: Mapping[str, Scalar]) -> Observation:
        now = self._clock.now()
        return Observation(
            id=stable_id(
                self.key.cluster,
                self.key.node,
                event,
                now.isoformat(),
                *map(str, data.values()),
                prefix="O-",
            ),
            cluster=self.key.cluster,
            node=self.key.node,
            kind=ObservationKind.AGENT,
            at=now,
            data={"event": event, **data},
        )

    # ── the verdict ──────────────────────────────────────────────────────────────────────────────

    @property
    def policy(self) -> NodePolicy:
        if self.alone:
            return msgspec.structs.replace(self.orders.policy, confirm_s=0)
        return self.orders.policy

    def _matters(self, finding: Finding) -> bool:
        """Whether a finding can ever weigh in the verdict; the rest is shipped and not kept."""
        if finding.code in CARRIED_BY_A_CHECK:
            return False
        grades = (finding, graded(finding, self.policy))
        return finding.verdict is Verdict.UNKNOWN or any(one.condemns for one in grades)

    def _judge(self) -> NodeVerdict:
        failing = self.trouble | ({SPOOL: self.disk.trouble} if self.disk.trouble else {})
        looks = self.looks | {where: Look(Verdict.UNKNOWN, what) for where, what in failing.items()}
        if self.left.fault:
            looks[LEFT] = Look(Verdict.FAULT, self.left.detail)
        return node_verdict(
            [one.finding for one in self.active.values()],
            self.orders,
            self.policy,
            {name: look.verdict for name, look in looks.items()},
            self.checking,
            self._clock.now(),
            known_since={id_: one.known_since for id_, one in self.active.items()},
            details={name: look.detail for name, look in looks.items()},
        )

    @property
    def starting(self) -> bool:
        """Whether the first look is still under way (bounded), and nothing condemns so far."""
        return (
            self.verdict.verdict is not Verdict.FAULT
            and not set(CHECKS) <= self.looks.keys()
            and self._clock.uptime_s() - self._began_s < START_S
        )

    def publish(self) -> None:
        """Renew the run directory's verdict; a change wakes the shipper and is copied to disk.

        A restarted agent that has not looked yet leaves the last run's verdict to its age: UNKNOWN
        for a moment at every upgrade would close the gates of a site whose policy says so.
        """
        verdict = self._judge()
        if verdict.verdict is Verdict.UNKNOWN and self.starting and self._files.there():
            return
        self._written(verdict)
        if RUN_DIR in self.trouble:
            # Unwritable: the old text may say OK. Where this one condemns, the gate must read the
            # other copy instead.
            self.copy()
            if self.verdict.verdict is Verdict.FAULT and STATE_COPY not in self.trouble:
                self._files.withdraw()

    def _written(self, verdict: NodeVerdict) -> None:
        """Write `verdict`; what fails in doing so is part of the next one."""
        try:
            self._files.renew(self._text(verdict))
        except StorageError as error:
            self._failed(RUN_DIR, error)
        else:
            self._well(RUN_DIR)
        judged = self._judge() if RUN_DIR in self.trouble else verdict
        if judged != self.verdict:
            self._log_change(judged)
            self.verdict = judged
            self.to_ship.set()
            self.copy_due.set()

    def copy(self) -> None:
        """Bring the state directory's copy up to date."""
        self.copy_due.clear()
        try:
            self._files.keep(self._text(self.verdict))
        except StorageError as error:
            if STATE_COPY not in self.trouble:
                self._failed(STATE_COPY, error)
                self._written(self._judge())
            self.copy_due.clear()  # the renewer asks again
        else:
            self._well(STATE_COPY)

    def _text(self, verdict: NodeVerdict) -> str:
        return write_verdict(verdict, self.policy, self.boot_id, int(self._clock.uptime_s()))

    def _log_change(self, verdict: NodeVerdict) -> None:
        if (verdict.verdict, verdict.phase) != (self.verdict.verdict, self.verdict.phase):
            self.log.info(
                "verdict_changed",
                verdict=str(verdict.verdict),
                phase=str(verdict.phase),
                message=verdict.message,
            )

    # ── the disk ─────────────────────────────────────────────────────────────────────────────────

    @property
    def spool(self) -> Spool:
        return self.disk.spool

    @property
    def full(self) -> bool:
        """Nothing but real data is waiting, up to the bound: read no further."""
        return self.spool.full

    def save_cursor(self) -> None:
        """Keep a cursor that moved over lines that mean nothing (a repeat would change nothing)."""
        if self._kept.get("cursor") is not self.cursor:
            self._keep()

    def recover(self) -> None:
        """Move back to the disk, and bring the copy up to date, once they can be written again."""
        if STATE_COPY in self.trouble:
            self.copy()
        if self.disk.trouble and self.disk.recover(self._move):
            self.publish()

    def _move(self, memory: Spool, disk: Spool) -> None:
        """Bring all to the disk, and take over what it knows and we, who perhaps began without it,
        do not.
        """
        waiting = memory.parcel(1 << 30)
        orders = disk.get("orders", OrdersState)
        if orders is not None and orders.seen > self.orders.seen:
            self.orders = orders
        both = disk.active() | self.active
        self.active = {id_: one for id_, one in both.items() if id_ not in self.orders.released}
        disk.keep(
            observations=waiting.observations,
            findings=waiting.findings,
            active=list(self.active.values()),
            closed=self.orders.released,
            put=self._state(),
        )

    def _state(self) -> dict[str, msgspec.Struct]:
        return {
            "cursor": self.cursor,
            "memory": self.memory,
            "orders": self.orders,
            "gate": self.gate,
            "baseline": self.baseline,
            "previous": self.previous,
            "left": self.left,
        }

    def _keep(
        self,
        *,
        observations: Sequence[Observation] = (),
        findings: Sequence[Finding] = (),
        active: Sequence[Active] = (),
        closed: Collection[str] = (),
    ) -> None:
        """Keep these together with all of our state that has changed."""
        state, before = self._state(), self.disk.trouble
        dropped = self.disk.keep(
            observations=() if self.alone else observations,
            findings=() if self.alone else findings,
            active=active,
            closed=closed,
            put={key: value for key, value in state.items() if self._kept.get(key) is not value},
        )
        self._kept = state
        if self.disk.trouble != before:
            self.publish()
        if dropped:
            self.log.warning("debug_data_dropped", dropped=dropped)
            data = {"dropped": dropped, "untold": self.spool.dropped()}
            self._keep(observations=[self._spoken("spool_dropped", data)])

    def _load(self) -> None:
        """Take up where the last run stopped. State in another form is a failed disk, not a crash."""
        try:
            self._take_up()
        except StorageError as error:
            self.disk.begin_empty(error)
            self._take_up()

    def _take_up(self) -> None:
        spool = self.spool
        self.memory = spool.get("memory", Memory) or Memory()
        self.cursor = spool.get("cursor", Cursor) or Cursor()
        self.orders = spool.get("orders", OrdersState) or OrdersState()
        self.gate = spool.get("gate", GateOffset) or GateOffset()
        self.baseline = spool.get("baseline", GpuBaseline) or GpuBaseline()
        self.previous = spool.get("previous", Cursor) or Cursor()
        self.active = spool.active()
        self.left = left_by(spool, self._place.run_dir, self._place.state_dir)

    def _failed(self, where: str, error: StorageError) -> None:
        if where not in self.trouble:
            self.log.error("storage_failed", where=where, error=str(error))
        self.trouble[where] = str(error)

    def _well(self, where: str) -> None:
        if self.trouble.pop(where, None) is not None:
            self.log.info("storage_recovered", where=where)
