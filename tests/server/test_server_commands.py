from __future__ import annotations

import stat
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result
from tests.server.site import C

from komainu.config import ClusterConfig, Config, ServerConfig
from komainu.core.errors import ConfigError, InputError
from komainu.core.names import NodeKey, NodeName
from komainu.core.record import Joined
from komainu.server import secrets
from komainu.server.commands import server
from komainu.server.run import serve
from komainu.store import SqlStore, open_store

Run = Callable[..., Result]


@pytest.fixture
def config(tmp_path: Path) -> Config:
    return Config(
        server=ServerConfig(database=f"sqlite:///{tmp_path}/new/komainu.db"),
        clusters=(ClusterConfig(name="c"),),
    )


@pytest.fixture
def run(config: Config) -> Run:
    def ask(*words: str) -> Result:
        return CliRunner().invoke(server, words, obj={"config": config}, catch_exceptions=False)

    return ask


def _store(config: Config) -> SqlStore:
    return open_store(config.server.database)


def test_the_first_start_makes_an_admin_whose_password_is_told_once(
    run: Run, config: Config, tmp_path: Path
) -> None:
    told = run("init", "--generate")
    assert told.exit_code == 0
    password = told.output.partition("password: ")[2].strip()
    assert len(password) == 23
    store = _store(config)
    kept = store.password_of("admin")
    store.close()
    assert kept is not None
    assert kept[0] == "admin"
    assert secrets.password_fits(password, kept[1])
    assert stat.S_IMODE((tmp_path / "new" / "komainu.db").stat().st_mode) == 0o600
    again = run("init", "--generate")
    assert "nothing was changed" in again.output
    assert "password" not in again.output


def test_a_password_may_come_from_a_file_and_must_not_be_short(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "password"
    path.write_text("correct horse\nsecond line\n")
    assert (
        run("user", "add", "ann", "--role", "operator", "--password-file", str(path)).exit_code == 0
    )
    assert "ann\toperator" in run("user", "list").output
    path.write_text("short\n")
    with pytest.raises(InputError, match="expected 10 to 256"):
        run("user", "add", "bob", "--role", "viewer", "--password-file", str(path))
    with pytest.raises(InputError, match="no password was given"):
        run("user", "add", "bob", "--role", "viewer")
    with pytest.raises(InputError, match="account name"):
        run("user", "add", "bob smith", "--role", "viewer", "--generate")


def test_a_removed_account_is_gone(run: Run) -> None:
    run("user", "add", "ann", "--role", "viewer", "--generate")
    assert run("user", "remove", "ann").output == "ann removed\n"
    with pytest.raises(InputError, match="no account"):
        run("user", "remove", "ann")


def test_a_join_token_that_is_printed_enrols_as_many_nodes_as_it_says(
    run: Run, config: Config
) -> None:
    token = run("join-token", "c", "--uses", "2").stdout.strip()
    store = _store(config)
    hashed, now = secrets.token_hash(token), datetime.now(UTC)
    joined = [store.enrol(hashed, NodeKey(C, NodeName(f"n{i}")), f"t{i}", now) for i in range(3)]
    assert joined == [Joined.NEW, Joined.NEW, None]
    late = store.enrol(hashed, NodeKey(C, NodeName("n9")), "t9", now + timedelta(hours=25))
    store.close()
    assert not late
    with pytest.raises(InputError, match="not among"):
        run("join-token", "other")


def test_a_join_token_for_a_node_is_good_for_that_one(run: Run, config: Config) -> None:
    told = run("join-token", "c", "--node", "n7")
    assert "good for c/n7 until" in told.stderr
    store = _store(config)
    hashed, now = secrets.token_hash(told.stdout.strip()), datetime.now(UTC)
    joined = [store.enrol(hashed, NodeKey(C, NodeName(name)), name, now) for name in ("n6", "n7")]
    store.close()
    assert joined == [None, Joined.NEW]
    with pytest.raises(InputError, match="node name"):
        run("join-token", "c", "--node", "-rf")


def test_an_api_token_is_printed_once_and_can_be_withdrawn(run: Run, config: Config) -> None:
    run("user", "add", "ann", "--role", "viewer", "--generate")
    token = run("token", "ann", "--days", "1").stdout.strip()
    store = _store(config)
    now = datetime.now(UTC)
    assert store.by_api_token(secrets.token_hash(token), now) is not None
    assert run("token", "ann", "--revoke").output == "1 token(s) of ann withdrawn\n"
    assert store.by_api_token(secrets.token_hash(token), now) is None
    store.close()
    with pytest.raises(InputError, match="no account"):
        run("token", "nobody")


def test_pruning_says_how_much_it_forgot(run: Run) -> None:
    assert run("prune", "--days", "1").output == "0 observation(s) forgotten\n"


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"tls_cert": "/nowhere.pem", "tls_key": "/nowhere.key"}, "not a readable file"),
        ({"tls_cert": __file__}, "belong together"),
        ({"listen": "nonsense"}, "expected ADDRESS:PORT"),
    ],
)
def test_a_server_that_cannot_start_says_which_key_is_wrong(
    tmp_path: Path, more: dict[str, str], said: str
) -> None:
    database = f"sqlite:///{tmp_path}/komainu.db"
    config = Config(server=ServerConfig(database=database, **more))  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=said):
        serve(config)


def test_the_group_alone_runs_the_server(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    served: list[Config] = []
    monkeypatch.setattr("komainu.server.run.serve", served.append)
    result = CliRunner().invoke(server, [], obj={"config": config})
    assert (result.exit_code, served) == (0, [config])
    assert isinstance(server, click.Group)
