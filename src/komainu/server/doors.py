"""Who may come in: login and logout, sessions, API tokens, roles, and the CSRF check.

A browser rides on a session cookie, so its POSTs must also carry the session's token in a header no
other site can set. The command line sends a person's API token, which no browser sends by itself.
"""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Callable
from datetime import datetime, timedelta

import msgspec
import structlog
from starlette.requests import Request
from starlette.responses import Response

from komainu import __version__
from komainu.core.errors import NotAllowed
from komainu.core.record import Person
from komainu.core.views import Me
from komainu.server import secrets
from komainu.server.patience import Allowance, Patience
from komainu.server.web import Refused, answer, asked_in, read
from komainu.store import SqlStore

log = structlog.get_logger()
ROLES = ("viewer", "operator", "admin")
"""Each may do what those before it may."""
COOKIE = "komainu_session"
CSRF = "x-komainu-csrf"
MAX_LOGIN_BYTES = 4096


class Login(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    user: str
    password: str


_login = msgspec.json.Decoder(Login).decode


class Doors:
    """The server's doors."""

    def __init__(self, store: SqlStore, *, session_hours: int, now: Callable[[], datetime]) -> None:
        self._store = store
        self._lasts = timedelta(hours=session_hours)
        self._now = now
        self._patience, self._allowance = Patience(), Allowance()
        # A try costs 16 MB and 50 ms: two at a time keep a guesser from starving the rest.
        self._trying = asyncio.Semaphore(2)

    async def person(self, request: Request) -> Person:
        """Who asks; Refused (401) for nobody."""
        header = request.headers.get("authorization")
        now = self._now()
        if header is not None:
            scheme, _, token = header.partition(" ")
            hashed = secrets.token_hash(token.strip())
            found = await asyncio.to_thread(self._store.by_api_token, hashed, now)
            if scheme.lower() != "bearer" or found is None:
                raise Refused(401, "no-login", "this API token is not (or no longer) valid")
            return found
        cookie = request.cookies.get(COOKIE)
        if cookie:
            hashed = secrets.token_hash(cookie)
            found = await asyncio.to_thread(self._store.by_session, hashed, now)
            if found is not None:
                return found
        raise Refused(401, "no-login", "log in first")

    async def admit(self, request: Request, role: str) -> Person:
        """Who asks, when they may: role, and for a browser's POST the CSRF header."""
        person = await self.person(request)
        if request.method not in {"GET", "HEAD"} and person.csrf:
            given = request.headers.get(CSRF, "")
            if not hmac.compare_digest(given.encode(), person.csrf.encode()):
                raise Refused(
                    403, "csrf", "the X-Komainu-Csrf header is missing or of another session"
                )
        if ROLES.index(person.role) < ROLES.index(role):
            raise NotAllowed(f"this needs the role {role}; {person.name} is {person.role}")
        return person

    async def me(self, request: Request) -> Response:
        return answer(_me(await self.admit(request, "viewer")))

    async def login(self, request: Request) -> Response:
        """Cross-site forms cannot send JSON, so this POST needs no token of a session to be."""
        if request.headers.get("content-type", "").partition(";")[0] != "application/json":
            raise Refused(415, "not-json", "a login is sent as application/json")
        asked = read(_login, await asked_in(request, MAX_LOGIN_BYTES), "the login")
        address = request.client.host if request.client else ""
        role = await self._checked(asked, address)
        token, csrf = secrets.new_token(), secrets.new_token()
        now = self._now()
        expires = now + self._lasts
        hashed = secrets.token_hash(token)
        await asyncio.to_thread(self._store.open_session, hashed, asked.user, csrf, expires, now)
        log.info("person_logged_in", user=asked.user)
        response = answer(_me(Person(name=asked.user, role=role, csrf=csrf)))
        response.set_cookie(
            COOKIE,
            token,
            max_age=int(self._lasts.total_seconds()),
            httponly=True,
            samesite="strict",
            secure=request.url.scheme == "https",
        )
        return response

    async def _checked(self, asked: Login, address: str) -> str:
        """The role behind a name and password; Refused otherwise, and ever more slowly."""
        now, name = self._now(), asked.user[:128]
        wait = max(self._patience.wait_s(name, now), self._allowance.wait_s(address, now))
        if wait:
            raise Refused(
                429, "too-many-tries", f"too many wrong passwords; try again in {wait} s", wait
            )
        # Counted before it is looked at (nothing is awaited in between), and taken back if it fits.
        self._patience.failed(name, now)
        self._allowance.use(address, now)
        known = await asyncio.to_thread(self._store.password_of, asked.user)
        role, kept = known or ("", secrets.NOBODY)
        async with self._trying:
            fits = await asyncio.to_thread(secrets.password_fits, asked.password, kept)
        if known is None or not fits:
            log.warning("login_refused", user=name, address=address)
            raise Refused(401, "wrong-password", "user name or password is wrong")
        self._patience.forget(name)
        self._allowance.give_back(address, self._now())
        return role

    async def logout(self, request: Request) -> Response:
        await self.admit(request, "viewer")
        cookie = request.cookies.get(COOKIE)
        if cookie:
            await asyncio.to_thread(
                self._store.close_session, secrets.token_hash(cookie), self._now()
            )
        response = answer(None)
        response.delete_cookie(COOKIE, httponly=True, samesite="strict")
        return response


def _me(person: Person) -> Me:
    return Me(user=person.name, role=person.role, csrf=person.csrf, version=__version__)
