"""The server as one Starlette application: rooms' pages, agents' routes, doors, events, console.

`build` is the seam for whoever embeds the server (run.py, the demo, tests): it connects concrete
ports and starts nothing; the loops start and end with the application's lifespan.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from collections.abc import AsyncIterator, Callable, Mapping

import msgspec
import structlog
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

import komainu.health.pages
import komainu.inventory.pages
import komainu.jobs.pages
import komainu.quarantine.pages
from komainu.config import Config
from komainu.console import frame
from komainu.core.names import ClusterName
from komainu.flow import Rooms
from komainu.ports import Asked, Clock, Page, Scheduler
from komainu.server import lab as lab_pages
from komainu.server.agents import Agents
from komainu.server.bell import Bell
from komainu.server.cluster import WatchedCluster
from komainu.server.desk import ServerDesk
from komainu.server.doors import Doors
from komainu.server.events import Events
from komainu.server.lab import LabControls
from komainu.server.web import Endpoint, Headers, answer, asked_in, http_failed, said_plainly
from komainu.store import SqlStore

log = structlog.get_logger()
API = "/api/v1"
MAX_ASK_BYTES = 16 << 10
PAGES: tuple[Page, ...] = (
    *komainu.inventory.pages.PAGES,
    *komainu.health.pages.PAGES,
    *komainu.quarantine.pages.PAGES,
    *komainu.jobs.pages.PAGES,
)
"""Every room's pages, listed once."""


def build(
    config: Config,
    *,
    store: SqlStore,
    schedulers: Mapping[ClusterName, Scheduler],
    clock: Clock,
    lab: LabControls | None = None,
    rooms: Rooms | None = None,
) -> Starlette:
    """The application. Clusters are those of `config` and of `schedulers`; one of `config` without a
    scheduler is watched only. `rooms`: other steps than our own (tests).
    """
    bell = Bell()
    watched = _watched(config, store, schedulers, clock, bell, rooms or own_rooms())
    desk = ServerDesk(
        store=store,
        policy=config.policy,
        watched=watched,
        clock=clock,
        bell=bell,
        lab=lab is not None,
    )
    doors = Doors(store, session_hours=config.server.session_hours, now=clock.now)
    pages = PAGES if lab is None else (*PAGES, *lab_pages.pages(lab))
    app = Starlette(
        routes=[*_own_routes(desk, doors), *_rooms_routes(pages, desk, doors), *frame.routes()],
        middleware=[
            Middleware(Headers),
            Middleware(GZipMiddleware, minimum_size=1024, compresslevel=4),
        ],
        exception_handlers={404: http_failed, 405: http_failed, 500: http_failed},
        lifespan=_lifespan(desk),
    )
    app.state.desk = desk
    return app


def own_rooms() -> Rooms:
    """The steps of our own rooms."""
    from komainu.quarantine.act import act
    from komainu.quarantine.decide import think

    return Rooms(think=think, act=act)


def _watched(  # noqa: PLR0917 - the ports, once
    config: Config,
    store: SqlStore,
    schedulers: Mapping[ClusterName, Scheduler],
    clock: Clock,
    bell: Bell,
    rooms: Rooms,
) -> dict[ClusterName, WatchedCluster]:
    polls = {ClusterName(c.name): float(c.scheduler_poll_s) for c in config.clusters}
    for name in schedulers:
        polls.setdefault(name, 5.0)
    advise = msgspec.structs.replace(config.policy, advise_only=True)
    return {
        name: WatchedCluster(
            name,
            policy=config.policy if name in schedulers else advise,
            rooms=rooms,
            store=store,
            scheduler=schedulers.get(name),
            clock=clock,
            poll_s=poll_s,
            bell=bell,
        )
        for name, poll_s in polls.items()
    }


def _lifespan(
    desk: ServerDesk,
) -> Callable[[Starlette], contextlib.AbstractAsyncContextManager[None]]:
    @contextlib.asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        del app
        loops = [
            asyncio.create_task(loop)
            for one in desk.watched.values()
            for loop in (one.look_forever(), one.act_forever())
        ]
        log.info("server_started", clusters=list(desk.clusters))
        try:
            yield
        finally:
            desk.stop()
            for loop in loops:
                loop.cancel()
            await asyncio.gather(*loops, return_exceptions=True)
            log.info("server_stopped")

    return lifespan


# ── routes ───────────────────────────────────────────────────────────────────────────────────────


def _own_routes(desk: ServerDesk, doors: Doors) -> list[BaseRoute]:
    agents, events = Agents(desk), Events(desk, doors)

    async def healthz(request: Request) -> Response:
        """Answers only when the store does."""
        del request
        await asyncio.to_thread(desk.ledger.last_seq)
        return answer({"ok": True})

    return [
        _route("GET", "/healthz", healthz),
        _route("POST", f"{API}/enrol", agents.enrol),
        _route("POST", f"{API}/batches", agents.batches),
        _route("POST", f"{API}/login", doors.login),
        _route("POST", f"{API}/logout", doors.logout),
        _route("GET", f"{API}/me", doors.me),
        _route("GET", f"{API}/events", events.events),
    ]


def _route(method: str, path: str, endpoint: Endpoint) -> Route:
    return Route(path, said_plainly(endpoint), methods=[method])


def _rooms_routes(pages: tuple[Page, ...], desk: ServerDesk, doors: Doors) -> list[BaseRoute]:
    return [_route(page.method, API + page.path, _endpoint(page, desk, doors)) for page in pages]


def _endpoint(page: Page, desk: ServerDesk, doors: Doors) -> Endpoint:
    """A page with its door: reading is for viewers, anything else for operators."""
    role = "viewer" if page.method == "GET" else "operator"

    async def endpoint(request: Request) -> Response:
        person = await doors.admit(request, role)
        asked = Asked(
            person=person,
            path=request.path_params,
            query=dict(request.query_params),
            body=b"" if page.method == "GET" else await asked_in(request, MAX_ASK_BYTES),
            accept=request.headers.get("accept", ""),
        )
        if inspect.iscoroutinefunction(page.answer):
            return answer(await page.answer(desk, asked))
        return answer(await asyncio.to_thread(page.answer, desk, asked))

    return endpoint
