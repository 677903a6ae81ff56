"""Pages of the queue, as the scheduler shows it: the beginning of the jobs' room."""

from __future__ import annotations

from komainu.core.views import JobRow, job_rows
from komainu.ports import Asked, Desk, Page


def jobs(desk: Desk, asked: Asked) -> list[JobRow]:
    """All jobs the scheduler still remembers, or those on one node now."""
    cluster = asked.cluster()
    wanted = [cluster] if cluster else desk.clusters
    return [
        row for name in wanted for row in job_rows(desk.ledger.scheduler_jobs(name), asked.node())
    ]


PAGES = (Page(method="GET", path="/jobs", answer=jobs),)
