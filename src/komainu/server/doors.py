"""Who may come in: login and logout, sessions, API tokens, roles, and the CSRF check.

A browser rides on a session cookie, so its POSTs must also carry the session's token in a header no
other site can set. The command line sends a person's API token, which no browser sends by itself.
"""

from __future__ import annotations

import asyncio
import hmac
from collections import OrderedDict
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
from komainu.server.web import Refused, answer, asked_in, read
from komainu.store import SqlStore

log = structlog.get_logger()
ROLES = ("viewer", "operator", "admin")
"""Each may do what those before it may."""
COOKIE = "komainu_session"
CSRF = "x-komainu-csrf"
MAX_LOGIN_BYTES = 4096
FREE_TRIES = 5
"""Wrong passwords in a row before each further one has to wait."""
LONGEST_WAIT_S = 300
FORGOTTEN_AFTER = timedelta(hours=1)
"""Wrong passwords so long ago no longer count: an address may be that of a whole site."""
REMEMBERED = 10_000
"""Names and addresses kept for the wait; the oldest is forgotten first."""


class Login(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    user: str
    password: str


_login = msgspec.json.Decoder(Login).decode


class Patience:
    """Slows down guessing: after some failures, each next try waits twice as long."""

    def __init__(self) -> None:
        self._failed: OrderedDict[str, tuple[int, datetime]] = OrderedDict()

    def wait_s(self, name: str, now: datetime) -> int:
        """Seconds until `name` may be tried again."""
        tries, at = self._recent(name, now)
        if tries < FREE_TRIES:
            return 0
        wait = min(1 << (tries - FREE_TRIES), LONGEST_WAIT_S)
        left = int((at + timedelta(seconds=wait) - now).total_seconds() + 0.999)
        return min(max(0, left), wait)

    def failed(self, name: str, now: datetime) -> None:
        tries, _ = self._recent(name, now)
        self._failed.pop(name, None)
        self._failed[name] = (min(tries + 1, FREE_TRIES + 10), now)
        while len(self._failed) > REMEMBERED:
            self._failed.popitem(last=False)

    def _recent(self, name: str, now: datetime) -> tuple[int, datetime]:
        """How often `name` has failed of late, and when last. A clock set back forgets as well."""
        tries, at = self._failed.get(name, (0, now))
        return (tries, at) if abs(now - at) < FORGOTTEN_AFTER else (0, now)

    def forget(self, name: str) -> None:
        self._failed.pop(name, None)


class Doors:
    """The server's doors."""

    def __init__(self, store: SqlStore, *, session_hours: int, now: Callable[[], datetime]) -> None:
        self._store = store
        self._lasts = timedelta(hours=session_hours)
        self._now = now
        self._patience = Patience()
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
        now = self._now()
        guards = (f"user {asked.user[:128]}", f"address {address}")
        wait = max(self._patience.wait_s(guard, now) for guard in guards)
        if wait:
            raise Refused(
                429, "too-many-tries", f"too many wrong passwords; try again in {wait} s", wait
            )
        known = await asyncio.to_thread(self._store.password_of, asked.user)
        role, kept = known or ("", secrets.NOBODY)
        async with self._trying:
            fits = await asyncio.to_thread(secrets.password_fits, asked.password, kept)
        if known is None or not fits:
            for guard in guards:
                self._patience.failed(guard, now)
            log.warning("login_refused", user=asked.user[:128], address=address)
            raise Refused(401, "wrong-password", "user name or password is wrong")
        for guard in guards:
            self._patience.forget(guard)
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
