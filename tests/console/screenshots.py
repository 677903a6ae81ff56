r"""Pictures of the three screens, dark and light, at 1280 and 1920 pixels.

    python -m tests.console.screenshots DIRECTORY
    python -m tests.console.screenshots DIRECTORY --url http://127.0.0.1:8470 --user demo \
        --password PASSWORD --cluster lab --node gpu-019      (of a running demo)
"""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Iterator
from pathlib import Path

from playwright.sync_api import Page
from tests.console.browser import chromium, serving
from tests.console.fixture_server import World

SIZES = {1280: 800, 1920: 1080}
SCREENS = {
    "map": "/c/{cluster}",
    "inspector": "/c/{cluster}?sel={node}",
    "table": "/c/{cluster}?view=table",
    "node": "/n/{cluster}/{node}",
    "findings": "/findings?cluster={cluster}&state=all&severity=fatal,degraded,watch",
}


def sign_in(page: Page, url: str, user: str, password: str) -> None:
    page.goto(f"{url}/login")
    page.fill("#user", user)
    page.fill("#password", password)
    page.click("button")
    page.wait_for_selector(".counts")


@contextlib.contextmanager
def _somewhere(url: str) -> Iterator[str]:
    if url:
        yield url
        return
    with serving(World()) as running:
        yield running.url


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--url", default="", help="a running server; default: the fixture")
    parser.add_argument("--user", default="admin")
    parser.add_argument("--password", default="admin")
    parser.add_argument("--cluster", default="lab-a")
    parser.add_argument("--node", default="gpu-012")
    parser.add_argument("--only", default="", help="one of: " + ", ".join(SCREENS))
    asked = parser.parse_args()
    asked.directory.mkdir(parents=True, exist_ok=True)
    with _somewhere(asked.url) as url, chromium() as browser:
        for scheme in ("dark", "light"):
            for width, height in SIZES.items():
                page = browser.new_page(
                    viewport={"width": width, "height": height},
                    color_scheme="dark" if scheme == "dark" else "light",
                )
                sign_in(page, url, asked.user, asked.password)
                for name, path in SCREENS.items():
                    if asked.only and asked.only != name:
                        continue
                    page.goto(url + path.format(cluster=asked.cluster, node=asked.node))
                    page.wait_for_selector(".panel")
                    page.wait_for_timeout(700)
                    if name == "findings":
                        page.get_by_role("button", name="GPU-XID").first.click()
                        page.wait_for_selector(".detail .evidence")
                    page.screenshot(path=asked.directory / f"{name}-{scheme}-{width}.png")
                page.close()


if __name__ == "__main__":
    main()
