from __future__ import annotations

import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.routing import Route
from starlette.testclient import TestClient
from structlog.testing import capture_logs
from tests.server.site import PASSWORD, ROLES, Clock, MemoryScheduler, application, bearer

from komainu.core.errors import StorageError
from komainu.server import secrets
from komainu.server.app import API, PAGES
from komainu.server.patience import (
    ADDRESS_AGAIN_S,
    ADDRESS_TRIES,
    FREE_TRIES,
    LONGEST_WAIT_S,
    Allowance,
    Patience,
)
from komainu.store import SqlStore

OPEN = {"/healthz", "/api/v1/enrol", "/api/v1/batches", "/api/v1/login"}
"""Routes with a door of their own, or none."""
PLACES = {"cluster": "c", "node": "n0", "finding": "F-1"}


def _login(client: TestClient, user: str = "operator", password: str = PASSWORD) -> str:
    answer = client.post("/api/v1/login", json={"user": user, "password": password})
    assert answer.status_code == 200, answer.text
    return str(answer.json()["csrf"])


def _ask(client: TestClient, method: str, path: str, headers: Mapping[Any, Any]) -> int:
    body = {"reason": "why", "dry_run": True} if method == "POST" else None
    place = path.format(**PLACES)
    return client.request(method, API + place, json=body, headers=headers).status_code


@pytest.mark.parametrize("page", PAGES, ids=lambda page: f"{page.method} {page.path}")
def test_no_page_opens_without_a_login(client: TestClient, page: object) -> None:
    method, path = page.method, page.path  # type: ignore[attr-defined]
    assert _ask(client, method, path, {}) == 401
    assert _ask(client, method, path, {"Authorization": "Bearer wrong"}) == 401
    assert _ask(client, method, path, {"Authorization": "Basic b3A6b3A="}) == 401


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("page", PAGES, ids=lambda page: f"{page.method} {page.path}")
def test_reading_is_for_viewers_and_anything_else_for_operators(
    client: TestClient, page: object, role: str
) -> None:
    method, path = page.method, page.path  # type: ignore[attr-defined]
    status = _ask(client, method, path, bearer(role))
    if method == "POST" and role == "viewer":
        assert status == 403
    else:
        assert status in ({200} if "{finding}" not in path else {404})


def test_every_route_is_known_to_these_tests(
    store: SqlStore, scheduler: MemoryScheduler, clock: Clock
) -> None:
    """A route added without a thought about its door must not slip through."""
    app = application(store, scheduler, clock)
    ours = {r.path for r in app.routes if isinstance(r, Route) and r.path.startswith("/api")}
    rooms = {API + page.path for page in PAGES}
    assert ours == rooms | (OPEN - {"/healthz"}) | {
        "/api/v1/logout",
        "/api/v1/me",
        "/api/v1/events",
    }


def test_a_login_opens_a_session_and_a_logout_ends_it(client: TestClient) -> None:
    csrf = _login(client)
    assert client.get("/api/v1/me").json() == {
        "user": "operator",
        "role": "operator",
        "csrf": csrf,
        "version": client.get("/api/v1/me").json()["version"],
    }
    assert client.post("/api/v1/logout", headers={"X-Komainu-Csrf": csrf}).status_code == 204
    assert client.get("/api/v1/me").status_code == 401


def test_the_session_cookie_is_out_of_reach_of_scripts_and_other_sites(client: TestClient) -> None:
    answer = client.post("/api/v1/login", json={"user": "viewer", "password": PASSWORD})
    cookie = answer.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    assert "Secure" in cookie


def test_a_session_expires(client: TestClient, clock: Clock) -> None:
    _login(client)
    clock.shift = timedelta(hours=1, seconds=1)
    assert client.get("/api/v1/me").status_code == 401


@pytest.mark.parametrize("path", ["/nodes/c/n0/hold", "/nodes/c/n0/release"])
def test_a_post_that_rides_on_the_cookie_needs_the_csrf_header(
    client: TestClient, path: str
) -> None:
    csrf = _login(client)
    assert _ask(client, "POST", path, {}) == 403
    assert _ask(client, "POST", path, {"X-Komainu-Csrf": "x"}) == 403
    assert _ask(client, "POST", path, {b"X-Komainu-Csrf": b"\xe9"}) == 403
    assert _ask(client, "POST", path, {"X-Komainu-Csrf": csrf}) == 200


def test_the_csrf_token_of_another_session_is_no_good(client: TestClient) -> None:
    other = _login(client, "admin")
    _login(client, "operator")
    assert _ask(client, "POST", "/nodes/c/n0/hold", {"X-Komainu-Csrf": other}) == 403


def test_logging_out_needs_the_csrf_header_too(client: TestClient) -> None:
    _login(client)
    assert client.post("/api/v1/logout").status_code == 403


@pytest.mark.parametrize(("user", "password"), [("operator", "wrong"), ("nobody", PASSWORD)])
def test_a_wrong_name_and_a_wrong_password_are_told_alike(
    client: TestClient, user: str, password: str
) -> None:
    answer = client.post("/api/v1/login", json={"user": user, "password": password})
    assert answer.status_code == 401
    assert answer.json()["error"] == {
        "code": "wrong-password",
        "message": "user name or password is wrong",
        "status": 401,
    }
    assert "set-cookie" not in answer.headers


def test_guessing_gets_slower_and_even_the_right_password_must_wait(
    client: TestClient, clock: Clock
) -> None:
    wrong = {"user": "operator", "password": "wrong"}
    assert [client.post("/api/v1/login", json=wrong).status_code for _ in range(6)] == [401] * 5 + [
        429
    ]
    right = {"user": "operator", "password": PASSWORD}
    answer = client.post("/api/v1/login", json=right)
    assert answer.status_code == 429
    assert int(answer.headers["retry-after"]) >= 1
    clock.shift = timedelta(seconds=301)
    assert client.post("/api/v1/login", json=right).status_code == 200


def _fail(client: TestClient, user: str, times: int) -> None:
    wrong = {"user": user, "password": "wrong"}
    for _ in range(times):
        assert client.post("/api/v1/login", json=wrong).status_code == 401


def test_an_address_is_held_up_too_and_for_seconds_only(
    client: TestClient, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many people may come from one address: whoever guesses there keeps the others waiting shortly."""
    monkeypatch.setattr(secrets, "password_fits", lambda given, _kept: given == PASSWORD)
    clock.stop()
    for number in range(ADDRESS_TRIES):
        _fail(client, f"nobody{number}", 1)
    right = {"user": "operator", "password": PASSWORD}
    answer = client.post("/api/v1/login", json=right)
    assert answer.status_code == 429
    assert int(answer.headers["retry-after"]) == ADDRESS_AGAIN_S
    clock.shift += timedelta(seconds=ADDRESS_AGAIN_S)
    for _ in range(3):  # a right password uses up nothing
        _login(client, "operator")
    _fail(client, "nobody", 1)
    assert client.post("/api/v1/login", json=right).status_code == 429


def test_a_right_password_forgives_the_wrong_ones_before_it(client: TestClient) -> None:
    for _ in range(2):
        _fail(client, "operator", FREE_TRIES - 1)
        _login(client, "operator")


def test_tries_at_once_are_counted_before_they_are_looked_at(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[str] = []

    def fits(given: str, _kept: str) -> bool:
        looked.append(given)
        time.sleep(0.05)  # the others are there by now
        return False

    monkeypatch.setattr(secrets, "password_fits", fits)
    wrong = [{"user": "admin", "password": f"wrong{number}"} for number in range(40)]
    with ThreadPoolExecutor(20) as many:
        asked = many.map(lambda login: client.post("/api/v1/login", json=login).status_code, wrong)
        statuses = list(asked)
    assert statuses.count(401) == len(looked) == FREE_TRIES
    assert statuses.count(429) == len(wrong) - FREE_TRIES


@given(st.lists(st.tuples(st.booleans(), st.integers(-30, 100)), max_size=200))
def test_an_address_never_waits_longer_than_it_takes_to_fill_up_by_one(
    steps: list[tuple[bool, int]],
) -> None:
    allowance, now = Allowance(), datetime(2026, 11, 30, 3, tzinfo=UTC)
    for guess, seconds in steps:
        now += timedelta(seconds=seconds)
        wait = allowance.wait_s("a", now)
        assert 0 <= wait <= ADDRESS_AGAIN_S
        if not wait:
            (allowance.use if guess else allowance.give_back)("a", now)
        assert allowance.wait_s("a", now + timedelta(seconds=ADDRESS_AGAIN_S)) == 0


def test_wrong_passwords_of_an_hour_ago_no_longer_count(client: TestClient, clock: Clock) -> None:
    _fail(client, "operator", 5)
    wrong = {"user": "operator", "password": "wrong"}
    assert client.post("/api/v1/login", json=wrong).status_code == 429
    clock.shift = timedelta(hours=1, seconds=1)
    _fail(client, "operator", 5)
    assert client.post("/api/v1/login", json=wrong).status_code == 429


def test_a_clock_that_is_set_back_locks_nobody_out() -> None:
    patience, now = Patience(), datetime(2026, 11, 30, 3, tzinfo=UTC)
    for _ in range(20):
        patience.failed("ann", now)
    assert patience.wait_s("ann", now) == LONGEST_WAIT_S
    assert patience.wait_s("ann", now - timedelta(minutes=30)) == LONGEST_WAIT_S
    assert patience.wait_s("ann", now - timedelta(days=365)) == 0


@pytest.mark.parametrize(
    "path",
    [
        "/findings?code=%00",
        "/findings/%00",
        "/findings?node=a%00",
        "/nodes/c/%00",
        "/events?after=%00",
    ],
)
def test_nul_in_an_address_is_the_askers_fault(client: TestClient, path: str) -> None:
    answer = client.get(API + path, headers=bearer("viewer"))
    assert answer.status_code == 400
    assert answer.json()["error"]["code"] == "bad-request"


@pytest.mark.parametrize(
    "text", ["a\\u0000b", "\\ud800", '"' + ',"z":' + "[" * 900 + "]" * 900 + ',"y":"']
)
def test_what_no_text_may_hold_is_refused_in_bodies(client: TestClient, text: str) -> None:
    asked = [
        ("/login", f'{{"user":"{text}","password":"x"}}', {}),
        ("/login", f'{{"user":"x","password":"{text}"}}', {}),
        ("/enrol", f'{{"join_token":"{text}","cluster":"c","node":"n0"}}', {}),
        ("/nodes/c/n0/hold", f'{{"reason":"{text}"}}', bearer("operator")),
        ("/nodes/c/n0/release", f'{{"reason":"{text}"}}', bearer("operator")),
    ]
    for path, body, who in asked:
        headers = {"Content-Type": "application/json", **who}
        answer = client.post(API + path, content=body, headers=headers)
        assert (path, answer.status_code) == (path, 400)


def test_a_failure_of_the_store_says_nothing_of_its_sql(
    client: TestClient, store: SqlStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(name: str) -> None:
        raise StorageError(f"[SQL: SELECT users.password FROM users WHERE name = {name!r}]")

    monkeypatch.setattr(store, "password_of", failing)
    with capture_logs() as logs:
        answer = client.post("/api/v1/login", json={"user": "ann", "password": "x"})
    assert answer.status_code == 503
    said = answer.json()["error"]["message"]
    assert "SELECT" not in answer.text
    assert "ann" not in answer.text
    (logged,) = [one for one in logs if one["event"] == "request_failed"]
    assert f"request={logged['request']}" in said
    assert "SELECT users.password" in logged["why"]


def test_a_fault_of_our_own_says_nothing_of_itself(
    store: SqlStore, scheduler: MemoryScheduler, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(name: str) -> None:
        raise ZeroDivisionError(name)

    monkeypatch.setattr(store, "password_of", failing)
    app = application(store, scheduler, clock)
    with TestClient(app, raise_server_exceptions=False) as client, capture_logs() as logs:
        answer = client.post("/api/v1/login", json={"user": "ann", "password": "x"})
    assert answer.status_code == 500
    assert "ann" not in answer.text
    assert [one["request"] in answer.text for one in logs if "request" in one] == [True]


def test_a_form_of_another_site_cannot_log_in(client: TestClient) -> None:
    answer = client.post("/api/v1/login", data={"user": "operator", "password": PASSWORD})
    assert answer.status_code == 415


def test_only_an_admin_passes_the_guard(client: TestClient) -> None:
    body = {"reason": "why", "dry_run": True, "force": True}
    path = "/api/v1/nodes/c/n0/hold"
    assert client.post(path, json=body, headers=bearer("operator")).status_code == 403
    assert client.post(path, json=body, headers=bearer("admin")).status_code == 200


def test_every_answer_carries_the_strict_headers(client: TestClient) -> None:
    for path in ("/healthz", "/api/v1/me", "/nothing"):
        headers = client.get(path).headers
        assert headers["content-security-policy"].startswith(
            "default-src 'none'; script-src 'self'"
        )
        assert "unsafe" not in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
    assert client.get("/api/v1/me").headers["cache-control"] == "no-store"


def test_a_password_is_kept_as_scrypt_and_a_token_as_its_hash(store: SqlStore) -> None:
    kept = store.password_of("viewer")
    assert kept is not None
    assert kept[1].startswith("scrypt$16384$8$1$")
    assert PASSWORD not in kept[1]
    assert secrets.password_fits(PASSWORD, kept[1])
    assert not secrets.password_fits(PASSWORD + "x", kept[1])
    assert secrets.password_hash(PASSWORD) != secrets.password_hash(PASSWORD)
