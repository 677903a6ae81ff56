"""The change feed as server-sent events: resumable, bounded, and ended with the session it began in.

    id: 42
    data: {"seq":42,"at":"…","cluster":"…","node":"…","what":"finding","ref":"F-…"}

`Last-Event-ID` (or `after`) says where to go on; without it the feed starts now. A page that is too
far behind gets one event `reset` with the newest number, and reads everything anew.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator

import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from komainu.core.errors import InputError, NotAllowed
from komainu.core.names import ClusterName, cluster_name
from komainu.server.bell import wait_for
from komainu.server.cluster import FEED
from komainu.server.desk import ServerDesk
from komainu.server.doors import Doors
from komainu.server.web import Refused

HEARTBEAT_S = 15.0
"""Below the 30 to 60 s after which proxies close a silent connection; as often it is asked whether the
person may still look, however much there is to send.
"""
AT_ONCE = 500
FAR_BEHIND = 5000
"""Changes after which reading everything anew is cheaper than catching up."""
MOST_STREAMS, MOST_OF_ONE = 200, 20
"""Streams open at a time, and those of one person: each page in a browser has one."""
_encode = msgspec.json.Encoder().encode


class Events:
    """The streams open now."""

    def __init__(self, desk: ServerDesk, doors: Doors) -> None:
        self._desk = desk
        self._doors = doors
        self._open: Counter[str] = Counter()

    async def events(self, request: Request) -> Response:
        person = await self._doors.admit(request, "viewer")
        named = request.query_params.get("cluster")
        cluster = cluster_name(named) if named else None
        after = _after(request)
        if self._open.total() >= MOST_STREAMS:
            raise Refused(503, "too-many-streams", f"{MOST_STREAMS} event streams are open", 5)
        if self._open[person.name] >= MOST_OF_ONE:
            whose = f"{MOST_OF_ONE} event streams of {person.name} are open; close a page"
            raise Refused(429, "too-many-streams", whose, 5)
        return StreamingResponse(
            self._stream(request, person.name, cluster, after),
            media_type="text/event-stream",
            headers={"X-Accel-Buffering": "no"},
        )

    async def _stream(
        self, request: Request, name: str, cluster: ClusterName | None, after: int | None
    ) -> AsyncIterator[bytes]:
        self._open[name] += 1
        clock = asyncio.get_running_loop().time
        try:
            at, first = await self._start(after)
            yield first
            due = clock() + HEARTBEAT_S
            while not self._desk.stopping:
                if clock() >= due:
                    await self._doors.admit(request, "viewer")
                    due = clock() + HEARTBEAT_S
                    yield b": still here\n\n"
                with self._desk.bell.listening(FEED) as rung:
                    part, at = await asyncio.to_thread(self._read, cluster, at)
                    if part:
                        yield part
                    else:
                        await wait_for(rung, max(0.0, due - clock()))
        except (Refused, NotAllowed):
            return  # logged out since, or no account any more
        finally:
            self._open[name] -= 1
            if not self._open[name]:
                del self._open[name]

    async def _start(self, after: int | None) -> tuple[int, bytes]:
        """Where to begin, and what to say first: that the stream is open, or that it was reset."""
        last = await asyncio.to_thread(self._desk.ledger.last_seq)
        if after is None:
            return last, b": open\n\n"
        lost = after > last or last - after > FAR_BEHIND
        if lost or not await asyncio.to_thread(self._goes_on, after, last):
            return last, b"event: reset\nid: %d\ndata: %d\n\n" % (last, last)
        return after, b": open\n\n"

    def _goes_on(self, after: int, last: int) -> bool:
        """Whether what follows `after` is still kept: the feed has no gap but where it was pruned."""
        following = self._desk.ledger.changes(after, limit=1)
        return after == last or (bool(following) and following[0].seq == after + 1)

    def _read(self, cluster: ClusterName | None, at: int) -> tuple[bytes, int]:
        """What came after `at`. Without a cluster's own news the place moves on all the same."""
        newest = self._desk.ledger.last_seq()
        found = self._desk.ledger.changes(at, cluster=cluster, limit=AT_ONCE)
        lines = b"".join(b"id: %d\ndata: %b\n\n" % (one.seq, _encode(one)) for one in found)
        if len(found) == AT_ONCE:
            return lines, found[-1].seq
        return lines, max(at, newest, found[-1].seq if found else 0)


def _after(request: Request) -> int | None:
    text = request.headers.get("last-event-id") or request.query_params.get("after") or ""
    if not text:
        return None
    if not (text.isascii() and text.isdigit()) or len(text) > 18:
        raise InputError(f"after={text[:40]!r} cannot be used: expected a number of the feed")
    return int(text)
