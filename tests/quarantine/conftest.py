"""Quiet: the machine makes a hundred thousand events, and no test here reads them."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
import structlog
from hypothesis import settings

settings.register_profile("komainu", deadline=None)  # a busy machine is no failure
settings.load_profile("komainu")


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    yield
    structlog.reset_defaults()
