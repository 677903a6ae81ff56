"""The frame's routes: headers, caching, and nothing but the files it means to serve."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest
from starlette.applications import Starlette

from komainu.console import frame


@pytest.fixture
async def client() -> httpx2.AsyncClient:
    app = Starlette(routes=frame.routes())
    return httpx2.AsyncClient(transport=httpx2.ASGITransport(app=app), base_url="http://test")


@pytest.fixture(autouse=True)
def _fresh_digests() -> Iterator[None]:
    yield
    frame._digest_of.cache_clear()


PAGES = ["/", "/c/lab", "/n/lab/gpu-001", "/findings", "/login"]


@pytest.mark.parametrize("path", PAGES)
async def test_every_page_carries_the_strict_policy(client: httpx2.AsyncClient, path: str) -> None:
    answer = await client.get(path)
    assert answer.status_code == 200
    policy = answer.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self'")
    assert "unsafe" not in policy
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["referrer-policy"] == "no-referrer"
    assert answer.headers["cache-control"] == "no-cache"


@pytest.mark.parametrize("path", PAGES)
async def test_no_page_has_a_script_or_a_style_of_its_own(
    client: httpx2.AsyncClient, path: str
) -> None:
    text = (await client.get(path)).text
    assert re.findall(r"<script(?![^>]*\bsrc=)", text) == []
    assert "<style" not in text
    assert " style=" not in text
    assert re.findall(r"(?:src|href)=\"(?!/static/)", text) == []


async def test_files_named_with_their_digest_are_kept_for_ever(client: httpx2.AsyncClient) -> None:
    text = (await client.get("/")).text
    for address in re.findall(r"(?:src|href)=\"(/static/[^\"]+)\"", text):
        answer = await client.get(address)
        assert answer.status_code == 200, address
        assert "immutable" in answer.headers["cache-control"]
    plain = await client.get("/static/app.js")
    assert plain.headers["cache-control"] == "no-cache"
    assert "etag" in plain.headers


@pytest.mark.parametrize(
    "name", ["app.html", "%2e%2e%2fframe.py", "..%2F..%2Fframe.py", "made-from.txt", "app.js.map"]
)
async def test_nothing_but_the_known_files_is_served(client: httpx2.AsyncClient, name: str) -> None:
    assert (await client.get(f"/static/{name}")).status_code == 404


async def test_names_in_the_address_are_never_put_into_the_page(client: httpx2.AsyncClient) -> None:
    answer = await client.get("/n/lab/%3Cscript%3Ealert(1)?x=%22%3E%3Cimg%3E")
    assert "alert(1)" not in answer.text
    assert answer.text == (await client.get("/")).text


async def test_a_missing_bundle_says_what_to_do(
    client: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(frame, "_BUNDLE", tmp_path)
    answer = await client.get("/")
    assert answer.status_code == 503
    assert "uv sync" in answer.text
