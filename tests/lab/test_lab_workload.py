"""The lab's jobs keep the shape of the real trace, at the lab's size."""

from __future__ import annotations

import itertools

import pytest

from komainu.lab.workload import Arrival, arrivals


def first(seed: int, gpus: int, count: int = 3000) -> list[Arrival]:
    return list(itertools.islice(arrivals(seed, gpus_total=gpus), count))


def test_jobs_that_were_running_come_first_and_nearly_fill_the_cluster() -> None:
    running = [job for job in first(1, 800) if job.at_s == 0]
    assert 500 <= sum(job.gpus for job in running) <= 800


@pytest.mark.parametrize("gpus", [96, 800, 2400])
def test_the_load_is_what_was_asked_at_any_size(gpus: int) -> None:
    jobs = [job for job in first(1, gpus, 6000) if job.at_s > 0]
    length = jobs[-1].at_s - jobs[0].at_s
    load = sum(job.duration_s * job.gpus for job in jobs) / length
    assert load / gpus == pytest.approx(0.88, rel=0.15)


def test_no_job_is_larger_than_half_the_cluster() -> None:
    assert max(job.gpus for job in first(1, 96)) <= 48


def test_they_arrive_in_order_and_never_end() -> None:
    jobs = first(1, 800, 15000)
    assert len(jobs) == 15000
    assert all(a.at_s <= b.at_s for a, b in itertools.pairwise(jobs))


def test_the_same_seed_is_the_same_queue() -> None:
    assert first(4, 800, 50) == first(4, 800, 50)
