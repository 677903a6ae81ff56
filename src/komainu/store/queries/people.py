"""Who may do what: accounts, sessions, and tokens. Secrets arrive here already hashed."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import Connection, delete, insert, select, update

from komainu.core.errors import InputError
from komainu.core.names import ClusterName, NodeKey, NodeName, stable_id
from komainu.core.observation import Observation, ObservationKind
from komainu.core.record import Joined, Person
from komainu.store.queries.feed import OURS, Writing
from komainu.store.queries.inventory import (
    ensure_cluster,
    ensure_node,
    observation_row,
    set_node,
)
from komainu.store.tables import (
    api_tokens,
    join_tokens,
    nodes,
    observations,
    sessions,
    users,
)


def put_user(tx: Writing, name: str, role: str, password: str) -> None:
    """Make an account, or give an existing one this role and password; its sessions end."""
    tx.connection.execute(delete(sessions).where(sessions.c.user == name))
    changed = tx.connection.execute(
        update(users).where(users.c.name == name).values(role=role, password=password)
    ).rowcount
    if not changed:
        tx.connection.execute(
            insert(users).values(name=name, role=role, password=password, created=tx.now)
        )


def drop_user(tx: Writing, name: str) -> bool:
    return tx.connection.execute(delete(users).where(users.c.name == name)).rowcount > 0


def user_list(connection: Connection) -> list[Person]:
    query = select(users.c.name, users.c.role).order_by(users.c.name)
    return [Person(name=row.name, role=row.role) for row in connection.execute(query)]


def password_of(connection: Connection, name: str) -> tuple[str, str] | None:
    """(role, password hash), or None for nobody."""
    row = connection.execute(
        select(users.c.role, users.c.password).where(users.c.name == name)
    ).first()
    return None if row is None else (row.role, row.password)


def open_session(tx: Writing, token: str, user: str, csrf: str, expires: datetime) -> None:
    tx.connection.execute(delete(sessions).where(sessions.c.expires <= tx.now))
    tx.connection.execute(
        insert(sessions).values(token_hash=token, user=user, csrf=csrf, expires=expires)
    )


def close_session(tx: Writing, token: str) -> None:
    tx.connection.execute(delete(sessions).where(sessions.c.token_hash == token))


def by_session(connection: Connection, token: str, now: datetime) -> Person | None:
    query = (
        select(users.c.name, users.c.role, sessions.c.csrf)
        .join(users, users.c.name == sessions.c.user)
        .where(sessions.c.token_hash == token, sessions.c.expires > now)
    )
    row = connection.execute(query).first()
    return None if row is None else Person(name=row.name, role=row.role, csrf=row.csrf)


def put_api_token(tx: Writing, token: str, user: str, expires: datetime | None) -> None:
    if password_of(tx.connection, user) is None:
        raise InputError(
            f"there is no account {user!r}. Make it first: komainu server user add {user} --role …"
        )
    tx.connection.execute(
        insert(api_tokens).values(token_hash=token, user=user, created=tx.now, expires=expires)
    )


def drop_api_tokens(tx: Writing, user: str) -> int:
    return tx.connection.execute(delete(api_tokens).where(api_tokens.c.user == user)).rowcount


def by_api_token(connection: Connection, token: str, now: datetime) -> Person | None:
    query = (
        select(users.c.name, users.c.role, api_tokens.c.expires)
        .join(users, users.c.name == api_tokens.c.user)
        .where(api_tokens.c.token_hash == token)
    )
    row = connection.execute(query).first()
    if row is None or (row.expires is not None and row.expires <= now):
        return None
    return Person(name=row.name, role=row.role)


def put_join_token(  # noqa: PLR0917 - what a token is
    tx: Writing,
    token: str,
    cluster: ClusterName,
    uses: int,
    expires: datetime,
    node: NodeName | None,
) -> None:
    ensure_cluster(tx.connection, cluster)
    tx.connection.execute(delete(join_tokens).where(join_tokens.c.expires <= tx.now))
    tx.connection.execute(
        insert(join_tokens).values(
            token_hash=token, cluster=cluster, uses_left=uses, expires=expires, node=node
        )
    )


def enrol(tx: Writing, join_token: str, key: NodeKey, node_token: str) -> Joined | None:
    """Use up one use of a join token for `key`; None when the token is not good for it, TAKEN when it
    would take the place of a node that has been heard. (One that has not may have lost the answer.)
    """
    good = (
        join_tokens.c.token_hash == join_token,
        join_tokens.c.cluster == key.cluster,
        join_tokens.c.uses_left > 0,
        join_tokens.c.expires > tx.now,
    )
    made = tx.connection.execute(select(join_tokens.c.node).where(*good)).first()
    if made is None or made.node not in {None, key.node}:
        return None
    before = ensure_node(tx.connection, key)
    if before.token_hash is not None and before.seen is not None and made.node is None:
        return Joined.TAKEN
    tx.connection.execute(
        update(join_tokens).where(*good).values(uses_left=join_tokens.c.uses_left - 1)
    )
    set_node(tx.connection, key, token_hash=node_token)
    if before.token_hash is None:
        return Joined.NEW
    tx.connection.execute(insert(observations), [observation_row(_again(tx, key), tx.now)])
    return Joined.AGAIN


def _again(tx: Writing, key: NodeKey) -> Observation:
    """A line of the node's history: the agent from before is shut out."""
    return Observation(
        id=stable_id(key.cluster, key.node, "enrolled", tx.now.isoformat(), prefix=OURS),
        cluster=key.cluster,
        node=key.node,
        kind=ObservationKind.AGENT,
        at=tx.now,
        data={"event": "enrolled_again"},
    )


def node_of_token(connection: Connection, token: str) -> NodeKey | None:
    row = connection.execute(
        select(nodes.c.cluster, nodes.c.node).where(nodes.c.token_hash == token)
    ).first()
    return None if row is None else NodeKey(row.cluster, row.node)
