"""The console on the real server, real agents and the lab: nothing between them is made up."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect
from tests.console.browser import chromium

pytestmark = [pytest.mark.browser, pytest.mark.timeout(180)]

START_S = 60
SOON_MS = 20_000
NODE = "gpu-003"


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """Address and admin's password of a running demo of twelve quiet nodes."""
    said = tmp_path_factory.mktemp("demo") / "said"
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "komainu", "demo", "--nodes", "12", "--no-faults"]
    with said.open("w") as out:
        running = subprocess.Popen(
            [*command, "--port", str(port)], stdout=out, stderr=subprocess.STDOUT
        )
    try:
        yield _announced(said, running)
    finally:
        running.send_signal(signal.SIGINT)
        assert running.wait(30) == 0, said.read_text()


def _announced(said: Path, running: subprocess.Popen[bytes]) -> tuple[str, str]:
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline and running.poll() is None:
        text = said.read_text()
        address = re.search(r"(http://[\d.:]+)", text)
        password = re.search(r"log in as\s+demo\s+(\S+)", text)
        if address and password:
            return address[1], password[1]
        time.sleep(0.1)
    pytest.fail(f"the demo did not come up in {START_S} s:\n{said.read_text()}")


@pytest.fixture
def page(demo: tuple[str, str]) -> Iterator[Page]:
    url, password = demo
    complaints: list[str] = []
    with chromium() as browser:
        page = browser.new_page(base_url=url, viewport={"width": 1280, "height": 800})
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on(
            "console", lambda said: complaints.append(said.text) if said.type == "error" else None
        )
        page.goto("/login")
        page.fill("#user", "demo")
        page.fill("#password", password)
        page.get_by_role("button", name="Sign in").click()
        page.wait_for_selector(".live-live")
        yield page
    assert complaints == []


def test_a_fault_of_a_visitors_choice_takes_the_node_out_and_a_release_brings_it_back(
    page: Page,
) -> None:
    expect(page.locator(".count").first).to_contain_text("12")
    page.fill("#lab-node", NODE)
    page.select_option("#lab-fault", "gpu-double-bit")
    page.get_by_role("button", name="Strike").click()
    expect(page.locator("[data-standing=quarantined] b")).to_have_text("1", timeout=SOON_MS)
    expect(page.locator(".happening")).to_contain_text(NODE)
    expect(page.locator(".needs")).to_contain_text("GPU-XID-48")

    page.goto(f"/n/lab/{NODE}")
    expect(page.locator(".standing-line")).to_contain_text("quarantined")
    expect(page.locator(".evidence").first).to_contain_text("NVRM: Xid")
    expect(page.get_by_role("heading", name="Scheduler").locator("../..")).to_contain_text("DRAIN")

    page.get_by_role("button", name="Release…").click()
    page.fill("#reason", "memory replaced and tested")
    page.get_by_role("button", name="Preview").click()
    expect(page.locator(".plan-text")).to_contain_text(f"{NODE} is released")
    page.get_by_role("button", name=f"Release {NODE}").click()
    expect(page.locator(".inspector [role=status]")).to_contain_text("done")
    expect(page.locator(".story")).to_contain_text("memory replaced and tested", timeout=SOON_MS)


def test_a_hold_asked_for_on_the_page_reaches_the_scheduler(page: Page) -> None:
    page.goto("/n/lab/gpu-007?act=hold")
    page.fill("#reason", "fan is loud")
    page.get_by_role("button", name="Preview").click()
    page.get_by_role("button", name="Hold gpu-007").click()
    expect(page.locator(".inspector [role=status]")).to_contain_text("done")
    expect(page.get_by_role("heading", name="Scheduler").locator("../..")).to_contain_text(
        "fan is loud", timeout=SOON_MS
    )
    page.goto("/findings?cluster=lab&state=all")
    expect(page.get_by_role("heading", name="Findings")).to_be_visible()
