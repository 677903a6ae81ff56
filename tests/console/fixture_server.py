"""A server for the console's tests: the real frame, and the API of core/views.py over made-up views.

    python -m tests.console.fixture_server [--port 8479] [--nodes 100]

Sign in as viewer, operator or admin; the password is the same word.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import json
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

import msgspec
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from tests.console import synthetic as made

from komainu.console.frame import routes
from komainu.core.decision import Outcome, Result
from komainu.core.node import NodeVerdict
from komainu.core.verdict import Verdict
from komainu.core.views import (
    Answer,
    ClusterView,
    DecisionPage,
    FindingPage,
    FindingView,
    GuardView,
    Me,
    NodeRow,
    NodeView,
    Standing,
)
from komainu.ports import Changed

_Endpoint = Callable[[Request], Awaitable[Response]]
_STANDINGS = list(Standing)
_FAULTS = [
    {
        "id": "xid-79",
        "title": "GPU falls off the bus (Xid 79)",
        "text": "Fatal: the node leaves service at once.",
    },
    {
        "id": "xid-63",
        "title": "Row remapping (Xid 63)",
        "text": "Watched: the node stays in service.",
    },
]


@dataclass
class World:
    """What the fixture shows; tests change it."""

    nodes: int = 100
    room: int = 2
    lab: bool = True
    advise_only: bool = False
    rows: dict[str, NodeRow] = field(default_factory=dict)
    findings: list[FindingView] = field(default_factory=made.first_findings)
    changes: list[Changed] = field(default_factory=list)
    asked: list[dict[str, object]] = field(default_factory=list)
    broken: bool = False
    slow_s: float = 0
    silent: str = ""
    """A node whose last verdict was OK, and whose agent is heard no more."""

    def __post_init__(self) -> None:
        self.rows = {row.node: row for row in map(made.row, range(self.nodes))}

    def change(self, node: str, what: str, ref: str = "") -> None:
        self.changes.append(
            Changed(
                seq=len(self.changes) + 1,
                at=datetime.now(UTC),
                cluster=made.CLUSTER,
                node=made.name_of(int(node.removeprefix("gpu-"))),
                what=what,
                ref=ref,
            )
        )

    def set_standing(self, node: str, standing: Standing) -> None:
        old = self.rows[node]
        gpus = tuple(msgspec.structs.replace(gpu, standing=standing) for gpu in old.gpus)
        self.rows[node] = msgspec.structs.replace(
            old, standing=standing, gpus=gpus, since=datetime.now(UTC)
        )
        self.change(node, "verdict")

    def lose(self, node: str, index: int) -> None:
        """The driver lists this GPU no longer; its standing stays what it is, unless it was well."""
        old = self.rows[node]
        gpus = list(old.gpus)
        standing = gpus[index].standing
        gone = Standing.UNSEEN if standing is Standing.HEALTHY else standing
        gpus[index] = msgspec.structs.replace(gpus[index], here=False, standing=gone)
        self.rows[node] = msgspec.structs.replace(old, gpus=tuple(gpus))
        self.change(node, "verdict")

    def strike(self, node: str) -> None:
        """A new finding on `node`, which is taken out."""
        found = made.finding(int(node.removeprefix("gpu-")), datetime.now(UTC))
        fresh = msgspec.structs.replace(found, id=f"F-new-{len(self.changes)}")
        self.findings.insert(0, made.view_of(fresh))
        self.set_standing(node, Standing.QUARANTINED)
        self.change(node, "finding", fresh.id)

    @property
    def guard(self) -> GuardView:
        out = sum(row.standing is Standing.QUARANTINED for row in self.rows.values())
        return GuardView(
            out=out,
            limit=8,
            removed_in_window=5 - self.room,
            max_in_window=5,
            window_s=600,
            tripped_at=None if self.room else made.NOW,
        )


def columns(meta: object, parts: Sequence[tuple[str, str, object]]) -> bytes:
    """The columnar buffer that console/static/core/columns.mjs reads."""
    heads, body = [], b""
    for name, kind, values in parts:
        if kind == "json":
            data = json.dumps(values).encode()
            count = len(data)
        else:
            numbers = list(values)  # type: ignore[call-overload]
            data = struct.pack(
                f"<{len(numbers)}{ {'u8': 'B', 'u16': 'H', 'u32': 'I'}[kind] }", *numbers
            )
            count = len(numbers)
        heads.append({"name": name, "type": kind, "offset": len(body), "count": count})
        body += data + b"\0" * (-len(data) % 8)
    header = json.dumps({"meta": meta, "cols": heads}).encode()
    head = b"KCL1" + struct.pack("<I", len(header)) + header
    return head + b"\0" * (-len(head) % 8) + body


def map_of(rows: Sequence[NodeRow]) -> bytes:
    gpus = [(n, gpu) for n, row in enumerate(rows) for gpu in row.gpus]
    return columns(
        {"standings": [s.value for s in _STANDINGS]},
        [
            ("node", "json", [row.node for row in rows]),
            ("rack", "json", [row.rack for row in rows]),
            ("node_standing", "u8", [_STANDINGS.index(row.standing) for row in rows]),
            ("node_since", "u32", [int(row.since.timestamp()) if row.since else 0 for row in rows]),
            ("node_open", "u16", [row.open_findings for row in rows]),
            ("gpu_node", "u32", [n for n, _ in gpus]),
            ("gpu_index", "u8", [gpu.index for _, gpu in gpus]),
            ("gpu_standing", "u8", [_STANDINGS.index(gpu.standing) for _, gpu in gpus]),
            ("gpu_busy", "u8", [int(gpu.job != "") for _, gpu in gpus]),
            ("gpu_here", "u8", [int(gpu.here) for _, gpu in gpus]),
        ],
    )


def _json(value: object, status: int = 200) -> Response:
    return Response(msgspec.json.encode(value), status, media_type="application/json")


def _error(status: int, message: str) -> Response:
    return _json({"error": {"code": "refused", "message": message, "status": status}}, status)


class Api:
    """The endpoints, over one World."""

    def __init__(self, world: World) -> None:
        self.world = world

    def routes(self) -> list[Route]:
        return [
            Route("/api/v1/login", self.login, methods=["POST"]),
            Route("/api/v1/logout", self.logout, methods=["POST"]),
            Route("/api/v1/me", self.signed(self.me)),
            Route("/api/v1/clusters", self.signed(self.clusters)),
            Route("/api/v1/clusters/{cluster}/map", self.signed(self.map)),
            Route("/api/v1/nodes", self.signed(self.nodes)),
            Route("/api/v1/nodes/{cluster}/{node}", self.signed(self.node)),
            Route("/api/v1/nodes/{cluster}/{node}/{what}", self.signed(self.act), methods=["POST"]),
            Route("/api/v1/findings", self.signed(self.findings)),
            Route("/api/v1/decisions", self.signed(self.decisions)),
            Route("/api/v1/events", self.signed(self.events)),
            Route("/api/v1/lab/faults", self.signed(self.faults)),
            Route("/api/v1/lab/inject", self.signed(self.inject), methods=["POST"]),
            Route("/api/v1/lab/repair", self.signed(self.repair), methods=["POST"]),
        ]

    def signed(self, endpoint: _Endpoint) -> _Endpoint:
        async def guarded(request: Request) -> Response:
            role = request.cookies.get("session", "")
            if not role:
                return _error(401, "Sign in first.")
            if request.method == "POST" and request.headers.get("x-komainu-csrf") != f"csrf-{role}":
                return _error(403, "The CSRF token is missing.")
            if (
                self.world.broken
                and "/events" not in request.url.path
                and "/me" not in request.url.path
            ):
                return _error(503, "The store does not answer.")
            return await endpoint(request)

        return guarded

    async def login(self, request: Request) -> Response:
        body = await request.json()
        if body["user"] not in {"viewer", "operator", "admin"} or body["password"] != body["user"]:
            return _error(401, "User or password is wrong.")
        answer = _json(self._me(body["user"]))
        answer.set_cookie("session", body["user"], httponly=True, samesite="strict")
        return answer

    async def logout(self, _request: Request) -> Response:
        answer = Response(status_code=204)
        answer.delete_cookie("session")
        return answer

    def _me(self, role: str) -> Me:
        return Me(user=role, role=role, csrf=f"csrf-{role}", version="0.1.0")

    async def me(self, request: Request) -> Response:
        return _json(self._me(request.cookies["session"]))

    async def clusters(self, _request: Request) -> Response:
        rows = self.world.rows.values()
        view = ClusterView(
            cluster=made.CLUSTER,
            nodes=len(rows),
            counts={s.value: sum(row.standing is s for row in rows) for s in Standing},
            guard=self.world.guard,
            jobs_running=61,
            jobs_pending=214,
            policy_version="9f31c2d40a77",
            advise_only=self.world.advise_only,
            lab=self.world.lab,
            scheduler_seen=datetime.now(UTC),
            last_seq=len(self.world.changes),
            held_back=() if self.world.room else (made.HELD,),
        )
        return _json([view])

    async def map(self, _request: Request) -> Response:
        await asyncio.sleep(self.world.slow_s)
        data = map_of(list(self.world.rows.values()))
        return Response(data, media_type="application/vnd.komainu.columns")

    async def nodes(self, _request: Request) -> Response:
        return _json(list(self.world.rows.values()))

    async def node(self, request: Request) -> Response:
        found = self.world.rows.get(request.path_params["node"])
        if found is None:
            return _error(404, f"No node {request.path_params['node']!r} in this cluster.")
        number = int(found.node.removeprefix("gpu-"))
        fields = made.node_view(number, found)
        if found.node == self.world.silent:
            fields["verdict"] = NodeVerdict(verdict=Verdict.OK)
        return _json(NodeView(**fields, guard=self.world.guard))  # type: ignore[arg-type]

    async def act(self, request: Request) -> Response:
        node, what = request.path_params["node"], request.path_params["what"]
        ask = await request.json()
        self.world.asked.append({"node": node, "what": what, **ask})
        if request.cookies["session"] == "viewer":
            return _error(403, "Holding needs an operator.")
        blocked = what == "hold" and self.world.room == 0 and not ask["force"]
        word = "Drain" if what == "hold" else "Resume"
        text = (
            f"{word} {made.CLUSTER}/{node}: {ask['reason']}\nrunning jobs finish; no new job starts"
        )
        outcome = None
        if blocked:
            text = f"{node} is not held: the guard has no room (5 removals in 600 s)."
        elif not ask["dry_run"]:
            result = Result.DONE
            outcome = Outcome(
                decision="D-9001",
                cluster=made.CLUSTER,
                node=node,
                result=result,
                at=datetime.now(UTC),
            )
            out = what == "hold"
            self.world.set_standing(node, Standing.QUARANTINED if out else Standing.HEALTHY)
        row = self.world.rows[node]
        jobs = sorted({gpu.job for gpu in row.gpus if gpu.job})
        answer = Answer(
            text=text,
            decision=None,
            outcome=outcome,
            jobs=jobs,
            guard=self.world.guard,
            dry_run=ask["dry_run"],
        )
        return _json(answer)

    async def findings(self, request: Request) -> Response:
        query = request.query_params
        chosen = [
            view
            for view in self.world.findings
            if (not query.get("node") or view.finding.node == query["node"])
            and (not query.get("code") or view.finding.code == query["code"])
            and (query.get("open") != "true" or view.open)
        ]
        limit = int(query.get("limit", "100"))
        return _json(
            FindingPage(findings=chosen[:limit], total=len(chosen), more=len(chosen) > limit)
        )

    async def decisions(self, _request: Request) -> Response:
        return _json(DecisionPage(decisions=made.decisions(), more=False))

    async def events(self, request: Request) -> Response:
        after = int(request.query_params.get("after", "0"))

        async def stream(sent: int) -> AsyncIterator[bytes]:
            yield b": hello\n\n"
            while not await request.is_disconnected():
                for change in self.world.changes[sent:]:
                    yield b"id: %d\ndata: %s\n\n" % (change.seq, msgspec.json.encode(change))
                    sent = change.seq
                await asyncio.sleep(0.05)

        return StreamingResponse(stream(after), media_type="text/event-stream")

    async def faults(self, _request: Request) -> Response:
        return _json(_FAULTS)

    async def inject(self, request: Request) -> Response:
        body = await request.json()
        self.world.asked.append(body)
        self.world.strike(body["node"])
        return JSONResponse({})

    async def repair(self, request: Request) -> Response:
        body = await request.json()
        self.world.set_standing(body["node"], Standing.HEALTHY)
        return JSONResponse({})


def app(world: World) -> Starlette:
    return Starlette(routes=[*Api(world).routes(), *routes()])


@dataclasses.dataclass
class Running:
    """A fixture server on its own port, in its own thread."""

    url: str
    world: World


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=8479)
    parser.add_argument("--nodes", type=int, default=100)
    asked = parser.parse_args()
    uvicorn.run(app(World(nodes=asked.nodes)), port=asked.port, log_level="warning")


if __name__ == "__main__":
    main()
