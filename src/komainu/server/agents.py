"""The agents' two routes: enrolment and batches."""

from __future__ import annotations

import asyncio

import msgspec
import structlog
from starlette.requests import Request
from starlette.responses import Response

from komainu.core.bounds import checked, without_nul
from komainu.core.errors import NotAllowed
from komainu.core.names import NodeKey, cluster_name, node_name
from komainu.core.record import Joined
from komainu.core.wire import Batch, Enrol, Enrolled
from komainu.server import secrets
from komainu.server.desk import ServerDesk
from komainu.server.web import Refused, answer, asked_in, body_of, read

log = structlog.get_logger()
MAX_BATCH_BYTES = 8 << 20
"""MAX_BATCH items of generous size: a finding with its evidence is 2 to 8 kB."""
MAX_ENROL_BYTES = 4096
_batch = msgspec.json.Decoder(Batch).decode
_enrol = msgspec.json.Decoder(Enrol).decode


class Agents:
    """What the server says to agents."""

    def __init__(self, desk: ServerDesk) -> None:
        self._desk = desk
        self._store = desk.ledger

    async def enrol(self, request: Request) -> Response:
        """A node's own token for a join token; one made for that node replaces the token it had."""
        asked = read(_enrol, await asked_in(request, MAX_ENROL_BYTES), "the enrolment")
        key = NodeKey(cluster_name(asked.cluster), node_name(asked.node))
        token = secrets.new_token()
        joined = await asyncio.to_thread(
            self._store.enrol,
            secrets.token_hash(asked.join_token),
            key,
            secrets.token_hash(token),
            self._desk.now(),
        )
        if joined is None:
            log.warning("enrolment_refused", node=str(key))
            raise NotAllowed(
                f"{key} cannot join: its join token is used up, expired, or of another cluster. "
                f"Make a new one: komainu server join-token {key.cluster}"
            )
        if joined is Joined.TAKEN:
            log.warning("enrolment_refused", node=str(key), why="enrolled already")
            raise NotAllowed(
                f"{key} is enrolled already, and its place is not given away: the join token is good "
                f"for new nodes. If it was installed anew, make one for it: komainu server join-token "
                f"{key.cluster} --node {key.node}"
            )
        if joined is Joined.AGAIN:
            log.warning("node_enrolled_again", node=str(key))
        else:
            log.info("node_enrolled", node=str(key))
        return answer(Enrolled(node_token=token))

    async def batches(self, request: Request) -> Response:
        """A batch, made durable and thought about before it is answered."""
        key = await self._node(request)
        body = without_nul(await body_of(request, MAX_BATCH_BYTES))
        batch = checked(read(_batch, body, f"the batch of {key}"))
        if (batch.cluster, batch.node) != (key.cluster, key.node):
            raise NotAllowed(
                f"this token is {key}'s, and the batch says it is from "
                f"{batch.cluster[:60]}/{batch.node[:60]}. Enrol each node for itself."
            )
        watched = self._desk.watched.get(key.cluster)
        if watched is None:
            raise NotAllowed(
                f"this server does not watch cluster {key.cluster}: add it to [[clusters]] in its "
                "komainu.toml"
            )
        return answer(await watched.take(batch, key))

    async def _node(self, request: Request) -> NodeKey:
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and token:
            hashed = secrets.token_hash(token.strip())
            key = await asyncio.to_thread(self._store.node_of_token, hashed)
            if key is not None:
                return key
        raise Refused(401, "no-node-token", "this is not the token of an enrolled node")
