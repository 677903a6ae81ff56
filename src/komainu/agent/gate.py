"""What the gate wrote: each answer becomes an observation, and each ended job a check.

The gate appends and never waits for us (deploy/slurm/prolog, epilog); the reader of its file, with
its durable offset, is quarantine/collect.py.
"""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

from komainu.agent.look import Looker
from komainu.agent.node import Node
from komainu.clients.inotify import Watch
from komainu.core.errors import StorageError
from komainu.core.gate import GateRecord, Why, record_data
from komainu.core.names import stable_id
from komainu.core.observation import Observation, ObservationKind
from komainu.ports import Clock
from komainu.quarantine.collect import GateOffset, GateRecords

GARBLED = "gate-records"
AGAIN_S = 5.0
"""Longest time between two looks, should a change have gone unnoticed."""


class GateFollower:
    """Follows one node's gate records."""

    def __init__(self, node: Node, looker: Looker, clock: Clock, run_dir: Path) -> None:
        self._node, self._looker, self._clock = node, looker, clock
        self._path = run_dir / "gate" / "records"
        self._records = GateRecords(self._path)

    async def run(self) -> None:
        self._prepare()
        watch = Watch(self._path)
        try:
            while True:
                self.read()
                await watch.changed(AGAIN_S)
        finally:
            watch.close()

    def _prepare(self) -> None:
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            self._node.log.warning("gate_folder_not_made", path=str(self._path), error=str(error))

    def read(self) -> None:
        """Take in what is new."""
        before: GateOffset = self._node.gate
        try:
            found, after = self._records.read_new(before)
        except StorageError as error:
            self._node.log.warning("gate_records_unreadable", error=str(error))
            return
        if after == before:
            return
        if after.garbled > before.garbled:
            self._node.log.warning("gate_records_garbled", lines=after.garbled - before.garbled)
        ended = any(record.why is Why.END for _, record in found)
        if ended:
            self._looker.job_ended()
        self._node.learn([self._observation(id_, record) for id_, record in found], gate=after)

    def _observation(self, id_: str, record: GateRecord) -> Observation:
        now, key = self._clock.now(), self._node.key
        age = (
            self._clock.uptime_s() - record.uptime_s if record.boot_id == self._node.boot_id else 0
        )
        return Observation(
            # Qualified: two nodes may write the same line at the same place of their files.
            id=stable_id(key.cluster, key.node, "gate", id_, prefix="O-"),
            cluster=key.cluster,
            node=key.node,
            kind=ObservationKind.GATE,
            at=now - timedelta(seconds=max(0.0, age)),
            data=record_data(record),
        )
