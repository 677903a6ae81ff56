"""Agent → server and back: batches at once when there is something, orders within a second.

Two calls are under way at a time. One carries the spool and the verdict, strictly in order, and waits
for nothing. The other carries nothing, and the server holds its reply until it has an order (long
poll). A batch is sent until its reply comes; only then are its contents forgotten.
"""

from __future__ import annotations

import random

from komainu import __version__
from komainu.agent.node import Node
from komainu.agent.spool import Parcel
from komainu.agent.waiting import woken
from komainu.core.errors import ServerError, ServerRefused
from komainu.core.names import stable_id
from komainu.core.node import NodeVerdict
from komainu.core.wire import MAX_BATCH, Batch, Hardware, Reply
from komainu.ports import Clock, ServerLink

BACKOFF_FIRST_S, BACKOFF_MAX_S = 0.25, 10.0
"""From a restart of the server, which must not be felt, to a night without one."""
WAIT_MAX_S = 30
"""Of a long poll; proxies cut idle requests after a minute."""
POLL_PAUSE_S = 1.0
"""Shortest time of a long poll that brought nothing: a server that does not hold is not hammered."""
REFUSED, WHY_MAX = "spool_refused", 500


class Shipper:
    """Connects one node with the server."""

    def __init__(self, node: Node, link: ServerLink, clock: Clock, heartbeat_s: int) -> None:
        self._node, self._link, self._clock = node, link, clock
        self._heartbeat_s, self._wait_s = heartbeat_s, min(heartbeat_s, WAIT_MAX_S)
        self._told_hardware: Hardware | None = None
        self._silent = False
        self._at_most = MAX_BATCH

    async def run_sending(self) -> None:
        node, failures = self._node, 0
        while True:
            if failures:
                await self._clock.sleep(_backoff(failures))
            else:
                await woken(node.to_ship, self._clock, self._heartbeat_s)
            node.to_ship.clear()
            try:
                while await self.send_once():
                    pass
                failures = 0
            except ServerError as error:
                failures += 1
                self._heard(error)

    async def run_listening(self) -> None:
        failures = 0
        while True:
            if failures:
                await self._clock.sleep(_backoff(failures))
            began, seen = self._clock.uptime_s(), self._node.orders.seen
            try:
                self._obey(await self._link.send(self._batch(Parcel(), wait_s=self._wait_s)))
                failures = 0
            except ServerError as error:
                failures += 1
                self._heard(error)
                continue
            pause = POLL_PAUSE_S - (self._clock.uptime_s() - began)
            if self._node.orders.seen == seen and pause > 0:
                await self._clock.sleep(pause)

    async def send_once(self) -> bool:
        """Send one batch; whether more is waiting. Raises ServerError."""
        node = self._node
        parcel = node.spool.parcel(self._at_most)
        verdict = None if node.starting else node.verdict
        hardware, dropped = node.hardware, node.spool.dropped()
        batch = self._batch(parcel, verdict=verdict, dropped=dropped)
        try:
            reply = await self._link.send(batch)
        except ServerRefused as error:
            await self._search(parcel, verdict, error)
            return True
        self._heard(None)
        self._at_most = min(MAX_BATCH, 2 * self._at_most)
        node.disk.shipped(parcel.ids, dropped)
        if batch.hardware is not None:
            self._told_hardware = hardware
        self._obey(reply)
        if reply.resend and not parcel.findings:
            # Else what it misses may have been among them: the next batch tells.
            node.tell_again()
        return parcel.left > 0 or (not node.starting and node.verdict != verdict)

    async def _search(
        self, parcel: Parcel, verdict: NodeVerdict | None, error: ServerRefused
    ) -> None:
        """Halve what is sent until the one thing is found that the server refuses, and set it aside:
        it must not keep all others from being told. Raises ServerError when it is the batch itself
        that is refused, with nothing in it: then nothing of the spool is to blame.
        """
        ids = parcel.ids
        if not ids:
            raise error
        self._at_most = max(1, len(ids) // 2)
        if len(ids) == 1:
            await self._link.send(self._batch(Parcel(), verdict=verdict))
            self._node.log.error(REFUSED, id=ids[0], error=str(error))
            self._node.disk.set_aside(ids[0])
            if not any(one.data.get("event") == REFUSED for one in parcel.observations):
                self._node.say(REFUSED, id=ids[0], why=str(error)[:WHY_MAX])
        await self._clock.sleep(BACKOFF_FIRST_S)  # a server that refuses much is not hammered

    def _batch(
        self,
        parcel: Parcel,
        *,
        verdict: NodeVerdict | None = None,
        dropped: int = 0,
        wait_s: float = 0,
    ) -> Batch:
        node, now = self._node, self._clock.now()
        content = [*parcel.ids, str(node.orders.seen)]
        new_hardware = verdict is not None and node.hardware != self._told_hardware
        if not parcel.ids:
            content += ["heartbeat", now.isoformat(), str(wait_s)]
        return Batch(
            # From its content: the same things sent again are the same batch.
            id=stable_id(node.key.cluster, node.key.node, *content, prefix="B-"),
            cluster=node.key.cluster,
            node=node.key.node,
            boot_id=node.boot_id,
            agent_version=__version__,
            sent_at=now,
            observations=list(parcel.observations),
            findings=list(parcel.findings),
            verdict=verdict,
            orders_seen=node.orders.seen,
            orders_at=node.orders.at,
            policy_seen=node.policy.version,
            dropped_debug=dropped,
            spooled=parcel.left,
            hardware=node.hardware if new_hardware else None,
            wait_s=wait_s,
        )

    def _obey(self, reply: Reply) -> None:
        self._node.server_ahead = reply.server_time - self._clock.now()
        self._node.obey(reply.orders)
        self._node.heard()

    def _heard(self, error: ServerError | None) -> None:
        if error is not None and not self._silent:
            self._node.log.warning("server_unreachable", error=str(error))
        elif error is None and self._silent:
            self._node.log.info("server_reached")
        self._silent = error is not None


def _backoff(failures: int) -> float:
    """Doubling, with jitter over the whole range, so that a cluster does not come back as one."""
    top = min(BACKOFF_MAX_S, BACKOFF_FIRST_S * 2 ** min(failures, 10))
    return random.uniform(top / 4, top)  # noqa: S311  spreading load, not guarding a secret
