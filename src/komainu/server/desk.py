"""What the server lends to the rooms' pages (ports.Desk): store, policy, clusters, and the way to act."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Hashable, Mapping
from datetime import datetime
from typing import Any

from komainu.core.names import ClusterName, NodeKey
from komainu.core.node import SchedulerNode
from komainu.core.policy import Policy
from komainu.ports import Clock
from komainu.server.bell import Bell
from komainu.server.cluster import WatchedCluster
from komainu.store import SqlStore


class ServerDesk:
    """One per server."""

    def __init__(
        self,
        *,
        store: SqlStore,
        policy: Policy,
        watched: Mapping[ClusterName, WatchedCluster],
        clock: Clock,
        bell: Bell,
        lab: bool,
    ) -> None:
        self.ledger = store
        self.node_policy = policy.for_node()
        self.watched = watched
        self.clusters = tuple(watched)
        self.watched_only = frozenset(name for name, one in watched.items() if not one.acts)
        self.bell = bell
        self.lab = lab
        self.stopping = False
        self._clock = clock
        self._locks_lock = threading.Lock()
        self._locks: dict[str, threading.Lock] = {}
        self._made: dict[str, tuple[Hashable, Any]] = {}

    def policy_of(self, cluster: ClusterName) -> Policy:
        return self.watched[cluster].policy

    def now(self) -> datetime:
        return self._clock.now()

    def shared(self, name: str, version: Hashable, make: Callable[[], Any]) -> Any:
        with self._locks_lock:
            lock = self._locks.setdefault(name, threading.Lock())
        with lock:
            known = self._made.get(name)
            if known is None or known[0] != version:
                known = self._made[name] = (version, make())
        return known[1]

    async def aside(self, cluster: ClusterName, work: Callable[[], Any]) -> Any:
        return await self.watched[cluster].aside(work)

    async def carry_out(self, cluster: ClusterName) -> None:
        await self.watched[cluster].carry_out()

    async def scheduler_node(self, key: NodeKey) -> SchedulerNode | None:
        return await self.watched[key.cluster].scheduler_node(key.node)

    def told(self, keys: Collection[NodeKey]) -> None:
        self.bell.ring(list(keys))

    def stop(self) -> None:
        """Let every long poll and event stream end, so that the server can."""
        self.stopping = True
        self.bell.ring_all()
