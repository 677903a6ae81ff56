"""Agents, server, or both killed at random moments of a fault storm on a real Slurm: nothing is lost,
nothing is done twice, nobody else's drain is touched, and in the end every job runs.

KOMAINU_KILLS and KOMAINU_SEED repeat it longer or exactly (200 kills: about 12 minutes).
"""

from __future__ import annotations

import os
import random
import socket
import time
from collections import Counter
from collections.abc import Iterator

import pytest
from tests.beds.fixtures import bed_of
from tests.beds.packages import BedError
from tests.beds.processes import until
from tests.beds.site import Site, site_on, states, with_gate
from tests.chaos import reckoning
from tests.chaos.storm import VENDOR, Storm, Written

from komainu.core.errors import KomainuError
from komainu.core.node import HELD_BY_PROLOG
from komainu.core.verdict import Verdict
from komainu.core.views import Ask, Standing

KILLS = int(os.environ.get("KOMAINU_KILLS", "30"))
SEED = int(os.environ.get("KOMAINU_SEED", "20261130"))
ROOM = 4
POLICY = f"""
[policy.guard]
max_nodes = {ROOM}
max_share = 0.5
max_in_window = 1000
window_s = 5
"""
SETTLE_S = 120.0
pytestmark = [pytest.mark.slurm, pytest.mark.chaos, pytest.mark.timeout(360 + 8 * KILLS)]


@pytest.fixture
def site() -> Iterator[Site]:
    with bed_of(with_gate(8, accounting=False)) as bed, site_on(bed, POLICY) as whole:
        yield whole


# ── killing ──────────────────────────────────────────────────────────────────────────────────────


def _listens(site: Site) -> bool:
    try:
        socket.create_connection(("127.0.0.1", site._port), 0.2).close()
    except OSError:
        return False
    return True


def _kill_one_round(site: Site, chance: random.Random) -> str:
    """Kill the server, an agent, or both; mostly at work, now and then while they start."""
    if chance.random() < 0.85:
        end = time.monotonic() + 20
        while not _listens(site) and time.monotonic() < end:
            time.sleep(0.02)
    time.sleep(chance.uniform(0, 2))
    node = chance.choice(site.names)
    what = chance.choice(("server", "agent", "both"))
    victims = {
        "server": ["server"],
        "agent": [f"agent.{node}"],
        "both": ["server", f"agent.{node}"],
    }
    for victim in victims[what]:
        site.kill(victim)
    time.sleep(chance.uniform(0, 0.8) ** 2)
    if "server" in victims[what]:
        site.start_server()
    if what != "server":
        site.start_agent(node)
    return what


# ── what is left ─────────────────────────────────────────────────────────────────────────────────


def _held_jobs(site: Site) -> list[str]:
    shown = site.bed.run("squeue", "-h", "-a", "-t", "all", "-o", "%A %r").splitlines()
    return [job for job, _, why in (line.partition(" ") for line in shown) if HELD_BY_PROLOG in why]


def _unsettled(site: Site, expected: Counter[tuple[str, int, str]]) -> list[str]:
    """What has not come to rest yet, in words."""
    with reckoning.database(site) as db:
        missing = (expected - reckoning.findings(db)).total()
        to_do = reckoning.to_do(db)
        behind = {n: had for n, had in reckoning.acknowledged(db).items() if had[0] != had[1]}
    held = _held_jobs(site)
    return [
        *([f"{missing} findings missing"] if missing else []),
        *([f"{to_do} decisions to do"] if to_do else []),
        *([f"orders not acknowledged (last, seen): {behind}"] if behind else []),
        *([f"jobs held: {held}"] if held else []),
    ]


def _settle(site: Site, expected: Counter[tuple[str, int, str]]) -> None:
    end = time.monotonic() + SETTLE_S
    while left := _unsettled(site, expected):
        if time.monotonic() > end:
            raise BedError(f"did not come to rest within {SETTLE_S:.0f} s: {'; '.join(left)}")
        time.sleep(0.5)


def _expected(written: list[Written]) -> Counter[tuple[str, int, str]]:
    return Counter((one.node, one.seq, one.code) for one in written if one.code is not None)


def _give_everything_back(site: Site, storm: Storm) -> None:
    """Release all that Komainu holds, and see that jobs run on every node but the vendor's."""
    names = [name for name in site.names if name != storm.rma]

    def well() -> bool:
        for name in names:
            try:
                row = site.api.node(site.key(name)).row
                if row.standing in {Standing.QUARANTINED, Standing.FAULTY, Standing.FOREIGN}:
                    site.api.release(site.key(name), Ask(reason="storm is over"))
            except KomainuError:
                return False
        shown = site.bed.run("scontrol", "-o", "show", "node", ",".join(names))
        verdicts = [site.verdict(name) for name in names]
        return "DRAIN" not in shown and all(v and v.verdict is Verdict.OK for v in verdicts)

    until(well, "all nodes given back", within_s=90, every_s=1)
    jobs = [site.submit(f"--nodelist={name}", "--wrap=true") for name in names]
    until(
        lambda: {state for state, _, _ in states(site, jobs).values()} == {"COMPLETED"},
        "a job on every node given back",
        within_s=90,
        every_s=0.5,
    )


def _print(table: dict[str, object]) -> None:
    width = max(map(len, table))
    print()
    for name, value in table.items():
        print(f"  {name:<{width}}  {value}")


# ── the test ─────────────────────────────────────────────────────────────────────────────────────


def test_nothing_is_lost_or_done_twice_however_often_agents_and_server_are_killed(
    site: Site,
) -> None:
    chance = random.Random(SEED)
    killed: Counter[str] = Counter()
    began = time.monotonic()
    with Storm(site, SEED) as storm:
        for _ in range(KILLS):
            killed[_kill_one_round(site, chance)] += 1
            storm.check()
    storm.check()
    stormed_s = time.monotonic() - began

    expected = _expected(storm.written)
    _settle(site, expected)
    settled_s = time.monotonic() - began - stormed_s

    with reckoning.database(site) as db:
        found = reckoning.findings(db)
        happened = reckoning.decisions(db)
        done_twice = reckoning.done_twice(db)
        orders, acknowledged = reckoning.orders(db), reckoning.acknowledged(db)
        condemned = reckoning.condemned(db)
        feed_gaps, tripped = reckoning.gaps_in_feed(db), reckoning.times_tripped(db)
        refused = reckoning.refusals(db)
    said = reckoning.slurm_said(site)
    kept = {name: reckoning.kept(site.home(name) / "state") for name in site.names}
    most_out = reckoning.most_out(happened)
    drains = [one for one in happened if one.action in reckoning.TAKES_OUT]
    in_slurm = reckoning.most_out_in_slurm(said)
    repeated = reckoning.written_again(said)
    _print(
        {
            "kills": f"{killed.total()} ({', '.join(f'{n} {k}' for k, n in sorted(killed.items()))})",
            "storm, then rest": f"{stormed_s:.0f} s, {settled_s:.0f} s",
            "lines written": len(storm.written),
            "findings due / found / lost / doubled": f"{expected.total()} / {found.total()} / "
            f"{(expected - found).total()} / {(found - expected).total()}",
            "nodes taken out / given back": f"{len(drains)} / {len(happened) - len(drains)}",
            "results": dict(Counter(f"{one.action} {one.result}" for one in happened)),
            "most out at once, decided / in Slurm / room": f"{most_out} / {in_slurm} / {ROOM}",
            "guard tripped": tripped,
            "gate refused / jobs submitted": f"{refused} / {len(storm.jobs)}",
            "same reason written twice to Slurm": repeated.total(),
            "hand drains / releases asked": f"{storm.by_hand} / {storm.given_back}",
            "orders": sum(map(len, orders.values())),
        }
    )

    assert expected.total() > KILLS
    assert storm.by_hand > 0
    assert tripped > 0
    assert found == expected
    assert not reckoning.taken_twice(happened)
    assert not done_twice
    assert not reckoning.overwritten(said)
    assert repeated.total() <= killed["server"] + killed["both"]
    assert most_out <= ROOM
    assert in_slurm <= ROOM
    vendor = [one for one in said if one.node == storm.rma]
    assert [one.value for one in vendor if one.what == "reason"] == [VENDOR]
    assert len([one for one in vendor if one.what == "state"]) == 1
    assert not feed_gaps
    assert not _held_jobs(site)
    for name in site.names:
        last, seen = acknowledged[name]
        assert orders[name] == list(range(1, last + 1))
        assert (seen, kept[name].orders_seen) == (last, last)
        assert not kept[name].waiting
        assert kept[name].active == condemned.get(name, set())
    _give_everything_back(site, storm)
    assert not reckoning.crashed(site)
