"""The pages' frame: login page, app shell, static files. Data comes from the API, never from here.

The shell holds no secret and needs no login; the page asks `/api/v1/me` and goes to `/login` when
nobody is signed in. The server mounts `routes()` beside the API.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable
from pathlib import Path

import jinja2
from starlette.requests import Request
from starlette.responses import FileResponse, PlainTextResponse, Response
from starlette.routing import Route

_HERE = Path(__file__).parent
_STATIC = _HERE / "static"
_BUNDLE = _STATIC / "bundle"

_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; font-src 'self'; form-action 'self'; base-uri 'none'; "
    "frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": _POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}
"""On every answer. The server sets the same on what the frame does not answer."""

# The only files served: a name from outside never becomes a path.
_ASSETS = {
    "app.js": (_BUNDLE / "app.js", "text/javascript"),
    "login.js": (_BUNDLE / "login.js", "text/javascript"),
    "theme.js": (_BUNDLE / "theme.js", "text/javascript"),
    "style.css": (_BUNDLE / "style.css", "text/css"),
    "LICENSES.txt": (_BUNDLE / "LICENSES.txt", "text/plain"),
    "icon.svg": (_STATIC / "icon.svg", "image/svg+xml"),
}
_A_YEAR = "public, max-age=31536000, immutable"

_NO_BUNDLE = (
    f"The console's bundle is missing: {_BUNDLE} holds no app.js.\n"
    "An installed wheel has it. In a checkout run: uv sync (or: npm ci && npm run build)\n"
    "The API and the command line work without it.\n"
)


def routes() -> list[Route]:
    """Every page address, each leading to the same shell: the page reads the address itself."""
    shell = _page("app.html")
    return [
        Route("/", shell, methods=["GET"]),
        Route("/c/{cluster}", shell, methods=["GET"]),
        Route("/n/{cluster}/{node}", shell, methods=["GET"]),
        Route("/findings", shell, methods=["GET"]),
        Route("/login", _page("login.html"), methods=["GET"]),
        Route("/static/{name}", _asset, methods=["GET"]),
    ]


def _page(template: str) -> Callable[[Request], Response]:
    def page(_request: Request) -> Response:
        if not (_BUNDLE / "app.js").is_file():
            return PlainTextResponse(_NO_BUNDLE, status_code=503, headers=HEADERS)
        text = _templates().get_template(template).render(asset=_address)
        headers = {**HEADERS, "cache-control": "no-cache"}
        return Response(text, media_type="text/html", headers=headers)

    return page


def _asset(request: Request) -> Response:
    found = _ASSETS.get(request.path_params["name"])
    if found is None or not found[0].is_file():
        return PlainTextResponse("no such file\n", status_code=404, headers=HEADERS)
    path, media_type = found
    # An address with the content's digest can be kept for ever; without it, ask each time.
    kept = _A_YEAR if request.query_params.get("v") == _digest(path) else "no-cache"
    headers = {**HEADERS, "cache-control": kept}
    return FileResponse(path, media_type=media_type, headers=headers)


def _address(name: str) -> str:
    return f"/static/{name}?v={_digest(_ASSETS[name][0])}"


def _digest(path: Path) -> str:
    return _digest_of(path, path.stat().st_mtime_ns)


@functools.lru_cache(maxsize=64)
def _digest_of(path: Path, _changed: int) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]


@functools.cache
def _templates() -> jinja2.Environment:
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(_HERE / "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
    )
