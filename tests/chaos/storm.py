"""What the world does to a site while its processes are killed: faults, jobs and persons, seeded.

Nothing here knows how Komainu judges. Each line is written together with the code it must give, or
with none, so that what was found can be compared with what was written.
"""

from __future__ import annotations

import contextlib
import itertools
import random
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Self

import msgspec
from tests.beds.packages import BedError
from tests.beds.site import Site

from komainu.core.errors import KomainuError
from komainu.core.names import NodeName
from komainu.core.verdict import Verdict
from komainu.core.views import Ask, Standing

KERNEL, USER = 3, 12
"""Priorities: of the kernel itself (facility 0), and of a program that writes to /dev/kmsg."""
VENDOR = "vendor: mainboard swap, RMA 4711"
WAITING_MAX = 30
GIVE_BACK = frozenset({Standing.QUARANTINED, Standing.FAULTY, Standing.FOREIGN})


class Line(msgspec.Struct, frozen=True):
    """One line, and the code of the finding it must give (None: no finding)."""

    text: str
    code: str | None
    prio: int = KERNEL


class Written(msgspec.Struct, frozen=True):
    """A line in a node's kernel log. `seq` is the kernel's own number."""

    node: NodeName
    seq: int
    code: str | None


class Pids:
    """No two lines name the same process: lines of one error fold, and these are all different."""

    def __init__(self) -> None:
        self._next = itertools.count(1000)

    def __call__(self) -> int:
        return next(self._next)


def burst(chance: random.Random, pids: Pids) -> list[Line]:
    """What one fault writes, in the order in which a driver writes it."""
    at = f"NVRM: Xid (PCI:0000:{0x41 + chance.randrange(8):02x}:00)"
    lost = f"{at}: 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
    reset = "GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)"
    by = f"pid={pids()}, name=python3"
    app, unknown = chance.choice((13, 31)), chance.randrange(900, 1000)
    bursts: dict[tuple[Line, ...], int] = {
        (Line(lost, "GPU-XID-79"),): 2,
        (
            Line(f"{at}: 48, {by}, DBE (double bit error)", "GPU-XID-48"),
            Line(f"{at}: 63, {by}, Row remap pending", "GPU-XID-63"),
            Line(f"{at}: 94, {by}, Contained: CE", "GPU-XID-94"),
        ): 2,
        (
            Line(f"{at}: {app}, {by}, Ch 00000008", f"GPU-XID-{app}"),
            Line(f"{at}: 45, pid={pids()}, name=python3, Ch 00000010", "GPU-XID-45"),
        ): 3,
        (Line(f"{at}: 154, pid='<unknown>', name=<unknown>, {reset}", "GPU-XID-154"),): 1,
        (Line(f"{at}: {unknown}, {by}, unheard of", f"GPU-XID-{unknown}"),): 2,
        (Line(f"mlx5_core 0000:17:00.0 eth2: Link up ({pids()})", None),): 3,
        (Line(lost, None, USER),): 1,
        (Line(f"{at}: 43, pid={pids()}, name=a): 79, GPU, Ch 00000018", "GPU-XID-43"),): 1,
    }
    return list(chance.choices(list(bursts), list(bursts.values()))[0])


class Storm:
    """A storm over one site, from entering the block until `over`. The last two nodes are special:
    `rma` is drained by a vendor from beginning to end, `own` belongs to a person who drains and
    resumes it by hand.
    """

    def __init__(self, site: Site, seed: int) -> None:
        self._site = site
        self._over = threading.Event()
        self._pids = Pids()
        self._chance = {n: random.Random(f"{seed} {n}") for n in ("faults", "jobs", "ann", "bob")}
        self.rma, self.own = site.names[-2:]
        self.written: list[Written] = []
        self.jobs: list[str] = []
        self.by_hand = 0
        self.given_back = 0
        self._drain_by_hand(self.rma, VENDOR)
        self._pool = ThreadPoolExecutor(4)
        self._doing: list[Future[None]] = []

    def __enter__(self) -> Self:
        doings = (self._faults, self._submissions, self._releases, self._work_by_hand)
        self._doing = [self._pool.submit(doing) for doing in doings]
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._pool.shutdown()

    def check(self) -> None:
        """Raise what went wrong in the storm itself, such as a person's drain that was touched."""
        for doing in self._doing:
            if doing.done():
                doing.result()

    # ── faults ───────────────────────────────────────────────────────────────────────────────────

    def _faults(self) -> None:
        chance = self._chance["faults"]
        nodes = [name for name in self._site.names if name != self.own]
        while not self._over.wait(chance.expovariate(3)):
            self._strike(chance.choice(nodes), chance)

    def _strike(self, node: NodeName, chance: random.Random) -> None:
        for line in burst(chance, self._pids):
            seq = self._site.logs[node].write(line.text, prio=line.prio)
            self.written.append(Written(node, seq, line.code))

    # ── jobs ─────────────────────────────────────────────────────────────────────────────────────

    def _submissions(self) -> None:
        chance = self._chance["jobs"]
        while not self._over.wait(chance.expovariate(1.5)):
            waiting = self._slurm("squeue", "-h", "-a", "-t", "pending", "-o", "%A").split()
            if len(waiting) < WAITING_MAX:
                size, lasts = chance.choice((1, 1, 2)), chance.uniform(0.1, 3)
                job = self._site.submit(f"--nodes={size}", f"--wrap=exec sleep {lasts:.1f}")
                self.jobs.append(job)
            if chance.random() < 0.1:
                self._slurm("scancel", chance.choice(self.jobs[-8:]))

    # ── persons ──────────────────────────────────────────────────────────────────────────────────

    def _releases(self) -> None:
        """Ann gives nodes back through Komainu, the vendor's among them: a mistake she may make."""
        chance = self._chance["ann"]
        while not self._over.wait(chance.expovariate(1.5)):
            with contextlib.suppress(KomainuError):  # the server is down: she tries again later
                rows = self._site.api.nodes(self._site.cluster)
                out = [NodeName(r.node) for r in rows if r.standing in GIVE_BACK]
                if out := [name for name in out if name != self.own]:
                    self._release(chance.choice(out), "looked at it")

    def _release(self, node: NodeName, because: str) -> None:
        self._site.api.release(self._site.key(node), Ask(reason=because))
        self.given_back += 1

    def _work_by_hand(self) -> None:
        """Bob drains his node with Slurm's own tools, works on it, and resumes it."""
        chance = self._chance["bob"]
        for turn in itertools.count(1):
            if not self._wait_until(self._is_well):
                return
            reason = f"bob: fan swap {turn}"
            self._drain_by_hand(self.own, reason)
            if chance.random() < 0.3:
                self._watch_it_stay(self.own, reason, chance.uniform(0.2, 1.5))
            # Mostly at once: Komainu has not yet seen that the node is his.
            for _ in range(3):
                self._strike(self.own, chance)
            self._watch_it_stay(self.own, reason, chance.uniform(0.5, 3))
            self._slurm("scontrol", "update", f"nodename={self.own}", "state=resume")
            self.by_hand += 1
            if self._over.wait(chance.uniform(1, 4)):
                return

    def _is_well(self) -> bool:
        """Whether all that was written on Bob's node is known, none of it speaks against the node any
        more, and it is in service. Like anyone he has it released when Komainu holds it.
        """
        try:
            view = self._site.api.node(self._site.key(self.own))
            known = self._site.api.findings(
                cluster=self._site.cluster, node=self.own, open_only=False, limit=1
            )
            if view.row.standing in GIVE_BACK:
                self._release(self.own, "fans swapped")
        except KomainuError:
            return False
        due = sum(one.node == self.own and one.code is not None for one in self.written)
        seen = self._site.verdict(self.own)
        return (
            known.total == due
            and view.standing_decision is None
            and view.row.standing not in GIVE_BACK
            and seen is not None
            and seen.verdict is Verdict.OK
            and "DRAIN" not in self._shown(self.own)
        )

    def _drain_by_hand(self, node: NodeName, reason: str) -> None:
        self._slurm("scontrol", "update", f"nodename={node}", "state=drain", f"reason={reason}")

    def _watch_it_stay(self, node: NodeName, reason: str, for_s: float) -> None:
        for _ in self._looks(for_s):
            shown = self._shown(node)
            if "DRAIN" not in shown or f"Reason={reason} [" not in shown:
                raise AssertionError(f"a person's drain ({reason}) was touched: {shown}")

    def _shown(self, node: NodeName) -> str:
        return self._slurm("scontrol", "-o", "show", "node", node)

    # ── waiting ──────────────────────────────────────────────────────────────────────────────────

    def _looks(self, for_s: float, every_s: float = 0.25) -> Iterator[None]:
        for _ in range(max(1, round(for_s / every_s))):
            yield
            if self._over.wait(every_s):
                return

    def _wait_until(self, holds: Callable[[], bool]) -> bool:
        """False when the storm is over first."""
        while not holds():
            if self._over.wait(0.5):
                return False
        return True

    def _slurm(self, *argv: str) -> str:
        """One of Slurm's commands; slurmctld is never killed here, but a busy one is asked again."""
        try:
            return self._site.bed.run(*argv)
        except BedError:
            return self._site.bed.run(*argv)
