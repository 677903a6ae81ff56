"""What is left after a storm, counted from the server's database, the agents' files and Slurm's log
by plain SQL and plain text: with nothing of the code that wrote them.
"""

from __future__ import annotations

import json
import re
import sqlite3
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

import msgspec
from tests.beds.site import Site

TAKES_OUT = {"drain", "adopt"}
IN_FORCE = {"done", "already"}
_SET = re.compile(r"update_node: node (\S+) (reason|state) set to:? ?(.*)")
_OURS = re.compile(r"komainu:(D-\w+):")

Found = Counter[tuple[str, int, str]]
"""(node, number of the kernel's record, code) → how many findings it gave."""


class Happened(msgspec.Struct, frozen=True):
    """One allowed decision about a node."""

    node: str
    at: str
    action: str
    id: str
    result: str | None
    by: str


@contextmanager
def database(site: Site) -> Iterator[sqlite3.Connection]:
    """The server's database, read only."""
    with closing(sqlite3.connect(f"file:{site.root}/komainu.db?mode=ro", uri=True)) as db:
        yield db


def findings(db: sqlite3.Connection) -> Found:
    query = """
        SELECT f.node, json_extract(o.body, '$.data.seq'), f.code
        FROM findings f LEFT JOIN observations o
        ON o.node = f.node AND o.id = json_extract(f.body, '$.evidence[0].observation')"""
    return Counter((node, seq, code) for node, seq, code in db.execute(query))


def decisions(db: sqlite3.Connection) -> list[Happened]:
    """Allowed decisions about nodes, in the order in which they were allowed. Of one moment, what
    gives back comes first: the guard had counted those nodes as out.
    """
    query = """
        SELECT node, allowed_at, action, id, result, json_extract(body, '$.by') FROM decisions
        WHERE allowed AND action != 'release-job' ORDER BY allowed_at, action != 'resume', number"""
    return [Happened(*row) for row in db.execute(query)]


def most_out(happened: Sequence[Happened]) -> int:
    """The most nodes that were out at one time by our doing: from the moment it was allowed,
    whatever came of it, until the node was given back.
    """
    out: set[str] = set()
    most = 0
    for one in happened:
        if one.action in TAKES_OUT:
            out.add(one.node)
        else:
            out.discard(one.node)
        most = max(most, len(out))
    return most


def taken_twice(happened: Sequence[Happened]) -> list[str]:
    """Nodes taken out again without having been given back since."""
    taken: dict[str, str] = {}
    twice: list[str] = []
    for one in happened:
        if one.action == "resume":
            taken.pop(one.node, None)
        elif one.result in IN_FORCE:
            if one.node in taken:
                twice.append(f"{one.node}: {one.id} after {taken[one.node]}")
            taken[one.node] = one.id
    return twice


def done_twice(db: sqlite3.Connection) -> list[str]:
    """Decisions that were carried out more than once by what was noted of them."""
    query = (
        "SELECT decision FROM outcomes WHERE result = 'done' GROUP BY decision HAVING count(*) > 1"
    )
    return [row[0] for row in db.execute(query)]


def gaps_in_feed(db: sqlite3.Connection) -> int:
    """Numbers missing between 1 and the counter."""
    held, newest = db.execute("SELECT count(*), coalesce(max(seq), 0) FROM changes").fetchone()
    counter = db.execute("SELECT seq FROM feed_counter").fetchone()[0]
    return int(counter - held + abs(counter - newest))


def orders(db: sqlite3.Connection) -> dict[str, list[int]]:
    """Node → its orders' numbers."""
    found: dict[str, list[int]] = {}
    for node, number in db.execute("SELECT node, number FROM orders ORDER BY node, number"):
        found.setdefault(node, []).append(number)
    return found


def acknowledged(db: sqlite3.Connection) -> dict[str, tuple[int, int]]:
    """Node → (last order written for it, last order its agent said it had kept)."""
    rows = db.execute("SELECT node, last_order, orders_seen FROM nodes")
    return {node: (last, seen) for node, last, seen in rows}


def to_do(db: sqlite3.Connection) -> int:
    return int(
        db.execute("SELECT count(*) FROM decisions WHERE allowed AND NOT final").fetchone()[0]
    )


def condemned(db: sqlite3.Connection) -> dict[str, set[str]]:
    """Node → ids of its open findings that condemn, as the catalogue grades them."""
    found: dict[str, set[str]] = {}
    for node, id_, body in db.execute("SELECT node, id, body FROM findings WHERE open"):
        if json.loads(body)["severity"] >= 2:
            found.setdefault(node, set()).add(id_)
    return found


class Kept(msgspec.Struct, frozen=True):
    """What an agent has on disk."""

    orders_seen: int
    held_by: str | None
    active: frozenset[str]
    waiting: int
    """Findings that have not been shipped."""


def kept(state_dir: Path) -> Kept:
    with closing(sqlite3.connect(f"file:{state_dir}/agent.db?mode=ro", uri=True)) as db:
        row = db.execute("SELECT value FROM kept WHERE key = 'orders'").fetchone()
        told = json.loads(row[0]) if row else {}
        active = frozenset(id_ for (id_,) in db.execute("SELECT id FROM active"))
        waiting = db.execute("SELECT count(*) FROM spool WHERE rank = 0").fetchone()[0]
    hold = told.get("hold") or {}
    return Kept(told.get("seen", 0), hold.get("decision"), active, waiting)


class Said(msgspec.Struct, frozen=True):
    """A change of a node's state or reason in slurmctld's log."""

    node: str
    what: str
    value: str


def slurm_said(site: Site) -> list[Said]:
    text = (site.bed.at.root / "log" / "slurmctld.log").read_text("utf-8", "replace")
    return [Said(*found.groups()) for found in map(_SET.search, text.splitlines()) if found]


def ours(said: Said) -> str | None:
    """The decision whose reason was written, None for anything else."""
    found = _OURS.match(said.value)
    return found[1] if found and said.what == "reason" else None


def times_tripped(db: sqlite3.Connection) -> int:
    query = "SELECT count(*) FROM changes WHERE what = 'guard' AND ref = 'tripped'"
    return int(db.execute(query).fetchone()[0])


def refusals(db: sqlite3.Connection) -> int:
    query = "SELECT count(*) FROM gate WHERE json_extract(body, '$.answer') = 'refuse'"
    return int(db.execute(query).fetchone()[0])


def written_again(log: Sequence[Said]) -> Counter[str]:
    """Decisions whose reason was written into Slurm more than once: how many times too many."""
    times = Counter(decision for decision in map(ours, log) if decision)
    return Counter({decision: count - 1 for decision, count in times.items() if count > 1})


def overwritten(log: Sequence[Said]) -> list[str]:
    """Reasons of others that ours took the place of, or that were cleared by a release of ours,
    while they stood.
    """
    standing: dict[str, str] = {}
    wrong: list[str] = []
    for one in log:
        if one.what == "state":
            if "DRAIN" not in one.value:
                standing.pop(one.node, None)
        elif ours(one) is None:
            standing[one.node] = one.value
        elif one.node in standing:
            wrong.append(f"{one.node}: {standing.pop(one.node)!r} gave way to {one.value!r}")
    return wrong


def most_out_in_slurm(log: Sequence[Said]) -> int:
    """The most nodes that bore a reason of ours at one time."""
    out: set[str] = set()
    most = 0
    for one in log:
        if one.what == "reason" and ours(one):
            out.add(one.node)
        elif one.what == "reason" or "DRAIN" not in one.value:
            out.discard(one.node)
        most = max(most, len(out))
    return most


def crashed(site: Site) -> list[str]:
    """Logs of server and agents that hold an error nobody foresaw."""
    logs = sorted((site.root / "log").glob("*.out"))
    return [one.name for one in logs if "Traceback" in one.read_text("utf-8", "replace")]


class Left(msgspec.Struct, frozen=True):
    """All of it, read when things have come to rest."""

    found: Found
    happened: list[Happened]
    done_twice: list[str]
    orders: dict[str, list[int]]
    acknowledged: dict[str, tuple[int, int]]
    condemned: dict[str, set[str]]
    kept: dict[str, Kept]
    said: list[Said]
    feed_gaps: int
    tripped: int
    refused: int

    @property
    def taken_out(self) -> int:
        return sum(one.action in TAKES_OUT for one in self.happened)


def reckon(site: Site) -> Left:
    with database(site) as db:
        return Left(
            found=findings(db),
            happened=decisions(db),
            done_twice=done_twice(db),
            orders=orders(db),
            acknowledged=acknowledged(db),
            condemned=condemned(db),
            kept={name: kept(site.home(name) / "state") for name in site.names},
            said=slurm_said(site),
            feed_gaps=gaps_in_feed(db),
            tripped=times_tripped(db),
            refused=refusals(db),
        )
