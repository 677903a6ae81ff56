from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient
from tests.server.site import C, Clock, MemoryScheduler, application, people

from komainu.store import SqlStore, open_store


@pytest.fixture(scope="session")
def ready(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database with tables and people, to copy: making one takes longer than most tests."""
    path = tmp_path_factory.mktemp("ready") / "komainu.db"
    opened = open_store(f"sqlite:///{path}")
    people(opened)
    opened.close()
    return path


@pytest.fixture
def store(tmp_path: Path, ready: Path) -> Iterator[SqlStore]:
    shutil.copy(ready, tmp_path / "komainu.db")
    opened = open_store(f"sqlite:///{tmp_path}/komainu.db")
    yield opened
    opened.close()


@pytest.fixture
def scheduler() -> MemoryScheduler:
    return MemoryScheduler()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def client(store: SqlStore, scheduler: MemoryScheduler, clock: Clock) -> Iterator[TestClient]:
    store.mirror(C, list(scheduler.known.values()), [], clock.now())
    with TestClient(application(store, scheduler, clock), base_url="https://komainu") as opened:
        yield opened
