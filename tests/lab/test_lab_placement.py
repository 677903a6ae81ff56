"""Where waiting jobs go: never more than there is, and nobody overtakes at another's expense."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from komainu.core.names import JobId, NodeName
from komainu.lab.placement import Room, Wish, place

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
N1, N2, N3 = NodeName("n1"), NodeName("n2"), NodeName("n3")


def _wish(job: str, nodes: int, gpus: int, seconds: float = 60) -> Wish:
    return Wish(JobId(job), nodes, gpus, seconds)


def _busy(free: int, seconds: float) -> Room:
    return Room(free, [(NOW + timedelta(seconds=seconds), 8 - free)])


def test_jobs_start_in_the_order_they_came() -> None:
    rooms = {N1: Room(8, []), N2: Room(8, [])}
    started = dict(place([_wish("1", 2, 8), _wish("2", 1, 8)], rooms, NOW))
    assert started == {"1": (N1, N2)}


def test_small_jobs_fill_a_node_before_they_break_another() -> None:
    rooms = {N1: Room(8, []), N2: Room(3, []), N3: Room(8, [])}
    assert dict(place([_wish("1", 1, 2)], rooms, NOW)) == {"1": (N2,)}


def test_a_short_job_passes_a_blocked_one_that_it_does_not_delay() -> None:
    rooms = {N1: Room(8, []), N2: _busy(0, 100)}
    wishes = [_wish("wide", 2, 8), _wish("short", 1, 8, 99)]
    assert dict(place(wishes, rooms, NOW)) == {"short": (N1,)}


def test_a_long_job_does_not_pass_a_blocked_one_it_would_delay() -> None:
    rooms = {N1: Room(8, []), N2: _busy(0, 100)}
    wishes = [_wish("wide", 2, 8), _wish("long", 1, 8, 101)]
    assert dict(place(wishes, rooms, NOW)) == {}


def test_a_job_that_wants_certain_nodes_gets_those_or_waits() -> None:
    rooms = {N1: Room(8, []), N2: Room(8, [])}
    wish = Wish(JobId("1"), 2, 8, 60, (N2, N3))
    assert dict(place([wish], rooms, NOW)) == {}
    assert dict(place([Wish(JobId("1"), 1, 8, 60, (N2,))], rooms, NOW)) == {"1": (N2,)}


_ROOMS = st.lists(st.integers(0, 8), min_size=1, max_size=6).map(
    lambda free: {NodeName(f"n{i}"): _busy(f, 100 * i) for i, f in enumerate(free)}
)
_WISHES = st.lists(
    st.tuples(st.integers(1, 4), st.integers(1, 8), st.floats(1, 1000)), max_size=12
).map(lambda wanted: [_wish(str(i), *w) for i, w in enumerate(wanted)])


@given(_ROOMS, _WISHES)
def test_no_gpu_is_ever_given_twice(rooms: dict[NodeName, Room], wishes: list[Wish]) -> None:
    free = {node: room.free for node, room in rooms.items()}
    sizes = {wish.job: wish for wish in wishes}
    for job, nodes in place(wishes, rooms, NOW):
        assert len(set(nodes)) == len(nodes) == sizes[job].nodes
        for node in nodes:
            free[node] -= sizes[job].gpus_per_node
    assert min(free.values()) >= 0


@given(_ROOMS, _WISHES)
def test_the_first_job_that_fits_is_never_left_waiting(
    rooms: dict[NodeName, Room], wishes: list[Wish]
) -> None:
    first = Wish(JobId("first"), 1, 4, 60)
    fits = any(room.free >= first.gpus_per_node for room in rooms.values())
    assert (first.job in dict(place([first, *wishes], rooms, NOW))) == fits
