"""Debian's Chromium and the fixture server, as tests and screenshots use them."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator

import uvicorn
from playwright.sync_api import Browser, sync_playwright
from tests.console.fixture_server import Running, World, app

CHROMIUM = "/usr/bin/chromium"
_ARGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
_PATIENCE_S = 10


@contextlib.contextmanager
def serving(world: World) -> Iterator[Running]:
    """The fixture server on a free port, until the block is left."""
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    config = uvicorn.Config(app(world), log_level="error", timeout_graceful_shutdown=1, ws="none")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    deadline = time.monotonic() + _PATIENCE_S
    while not server.started and time.monotonic() < deadline:
        time.sleep(0.01)
    try:
        yield Running(f"http://127.0.0.1:{listener.getsockname()[1]}", world)
    finally:
        server.should_exit = True
        thread.join(_PATIENCE_S)
        listener.close()


@contextlib.contextmanager
def chromium() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=_ARGS)
        try:
            yield browser
        finally:
            browser.close()
