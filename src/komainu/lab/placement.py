"""Which waiting job goes where: first in, first out, with EASY backfill.

The first job that does not fit gets a reservation at the earliest time its nodes come free; a later
job may start before it only where it does not delay it. Pure: takes a picture, returns choices.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta

import msgspec

from komainu.core.names import JobId, NodeName


class Room(msgspec.Struct):
    """One usable node: its free GPUs now, and when others come free."""

    free: int
    ends: list[tuple[datetime, int]]
    """(when, GPUs that come free then), in no order."""


class Wish(msgspec.Struct, frozen=True):
    """One waiting job that may start now."""

    job: JobId
    nodes: int
    gpus_per_node: int
    duration_s: float
    on: tuple[NodeName, ...] = ()
    """These nodes exactly; empty: any."""


class _Reservation(msgspec.Struct, frozen=True):
    nodes: frozenset[NodeName]
    at: datetime


def place(
    wishes: Iterable[Wish], rooms: Mapping[NodeName, Room], now: datetime
) -> Iterator[tuple[JobId, tuple[NodeName, ...]]]:
    """The jobs to start now, each with its nodes. `rooms` is used up along the way."""
    reserved: _Reservation | None = None
    hopeless: set[tuple[int, int]] = set()
    for wish in wishes:
        shape = (wish.nodes, wish.gpus_per_node)
        if shape in hopeless and not wish.on:
            continue
        fitting = _fitting(wish, rooms)
        nodes = _choose(wish, fitting, rooms, reserved, now)
        if nodes:
            for node in nodes:
                rooms[node].free -= wish.gpus_per_node
            yield wish.job, nodes
        elif not wish.on:
            if len(fitting) < wish.nodes:  # room only shrinks from here on
                hopeless.add(shape)
            reserved = reserved or _reserve(wish, rooms)


def _fitting(wish: Wish, rooms: Mapping[NodeName, Room]) -> list[NodeName]:
    among: Iterable[NodeName] = wish.on or rooms
    return [n for n in among if n in rooms and rooms[n].free >= wish.gpus_per_node]


def _choose(
    wish: Wish,
    fitting: Sequence[NodeName],
    rooms: Mapping[NodeName, Room],
    reserved: _Reservation | None,
    now: datetime,
) -> tuple[NodeName, ...]:
    """Nodes for `wish`, the fullest first so that whole nodes stay whole; empty: none now."""
    if reserved and now + timedelta(seconds=wish.duration_s) > reserved.at:
        fitting = [node for node in fitting if node not in reserved.nodes]
    if len(fitting) < wish.nodes:
        return ()
    return tuple(sorted(fitting, key=lambda node: rooms[node].free)[: wish.nodes])


def _reserve(wish: Wish, rooms: Mapping[NodeName, Room]) -> _Reservation | None:
    """The earliest moment `wish` could start, and where; None when never on these nodes."""
    times = []
    for node, room in rooms.items():
        at = _enough(room, wish.gpus_per_node)
        if at is not None:
            times.append((at, node))
    if len(times) < wish.nodes:
        return None
    times.sort()
    chosen = times[: wish.nodes]
    return _Reservation(frozenset(node for _, node in chosen), chosen[-1][0])


_AT_ONCE = datetime.fromisoformat("0001-01-01T00:00:00+00:00")


def _enough(room: Room, gpus: int) -> datetime | None:
    free = room.free
    if free >= gpus:
        return _AT_ONCE
    for at, freed in sorted(room.ends):
        free += freed
        if free >= gpus:
            return at
    return None
