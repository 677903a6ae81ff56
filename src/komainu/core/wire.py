"""What agent and server say to each other, as JSON over HTTP(S).

    POST /api/v1/enrol    Enrol → Enrolled          once, with a one-time join token
    POST /api/v1/batches  Batch → Reply             Authorization: Bearer NODE_TOKEN

A batch is sent until its reply arrives: at least once in transit. Every observation and finding
carries its own idempotent id: exactly once in effect. An empty batch is a heartbeat; `wait_s` asks
the server to hold the reply until an order appears (long poll).
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from komainu.core.decision import Order
from komainu.core.instant import Instant
from komainu.core.node import NodeVerdict
from komainu.core.observation import Finding, Observation

MAX_BATCH = 500
"""Observations plus findings in one batch."""
MAX_ORDERS = 1_000_000_000
"""No node is given so many; a larger number is an agent's error, and must not overflow ours."""
MAX_COUNT = 1 << 53
"""Above it not every reader of JSON counts exactly."""


class Enrol(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    join_token: str
    cluster: str
    node: str


class Enrolled(msgspec.Struct, frozen=True, kw_only=True):
    node_token: str


class GpuSeen(msgspec.Struct, frozen=True, kw_only=True):
    index: int
    pci: str = ""
    uuid: str = ""
    serial: str = ""
    model: str = ""
    here: bool = True
    """False: seen on this node before, and not listed now. It keeps its place on every page."""


class Hardware(msgspec.Struct, frozen=True, kw_only=True):
    """The beginning of inventory: what this node is made of, as the agent saw it."""

    rack: str = ""
    gpus: tuple[GpuSeen, ...] = ()


class Batch(msgspec.Struct, frozen=True, kw_only=True):
    """From one node. `orders_seen` is the highest order number persisted by the agent, `orders_at`
    when that order was given: the two name it, also to a server that has given its number twice.
    """

    id: str
    cluster: str
    node: str
    boot_id: str
    agent_version: str
    sent_at: Instant
    observations: Annotated[list[Observation], msgspec.Meta(max_length=MAX_BATCH)] = []
    findings: Annotated[list[Finding], msgspec.Meta(max_length=MAX_BATCH)] = []
    verdict: NodeVerdict | None = None
    orders_seen: Annotated[int, msgspec.Meta(ge=0, le=MAX_ORDERS)] = 0
    orders_at: Instant | None = None
    policy_seen: str = ""
    dropped_debug: Annotated[int, msgspec.Meta(ge=0, le=MAX_COUNT)] = 0
    """Debug observations dropped from a full spool since the last accepted batch."""
    spooled: Annotated[int, msgspec.Meta(ge=0, le=MAX_COUNT)] = 0
    """Items still waiting in the spool after this batch."""
    hardware: Hardware | None = None
    wait_s: Annotated[float, msgspec.Meta(ge=0, le=60)] = 0


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """The server has made everything in the batch durable before it answers."""

    batch: str
    orders: list[Order] = []
    resend: bool = False
    """The verdict rests on findings the server does not know: it asks for all that the node keeps."""
    server_time: Instant
