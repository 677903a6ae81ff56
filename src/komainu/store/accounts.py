"""The part of the store that knows people, nodes' tokens, and nothing of health."""

from __future__ import annotations

from contextlib import AbstractContextManager
from datetime import datetime

from sqlalchemy import Connection

from komainu.core.names import ClusterName, NodeKey, NodeName
from komainu.core.record import Joined, Person
from komainu.store.queries import people
from komainu.store.queries.feed import Writing


class Accounts:
    """Accounts, sessions and tokens; every secret arrives hashed (server/secrets.py)."""

    def _reading(self) -> AbstractContextManager[Connection]:
        raise NotImplementedError

    def _writing(self, now: datetime) -> AbstractContextManager[Writing]:
        raise NotImplementedError

    def put_user(self, name: str, role: str, password: str, now: datetime) -> None:
        """Make an account, or change its role and password, which ends its sessions."""
        with self._writing(now) as tx:
            people.put_user(tx, name, role, password)

    def drop_user(self, name: str, now: datetime) -> bool:
        with self._writing(now) as tx:
            return people.drop_user(tx, name)

    def users(self) -> list[Person]:
        with self._reading() as connection:
            return people.user_list(connection)

    def password_of(self, name: str) -> tuple[str, str] | None:
        """(role, password hash), or None for nobody."""
        with self._reading() as connection:
            return people.password_of(connection, name)

    def open_session(
        self, token: str, user: str, csrf: str, expires: datetime, now: datetime
    ) -> None:
        with self._writing(now) as tx:
            people.open_session(tx, token, user, csrf, expires)

    def close_session(self, token: str, now: datetime) -> None:
        with self._writing(now) as tx:
            people.close_session(tx, token)

    def by_session(self, token: str, now: datetime) -> Person | None:
        with self._reading() as connection:
            return people.by_session(connection, token, now)

    def put_api_token(
        self, token: str, user: str, now: datetime, expires: datetime | None = None
    ) -> None:
        with self._writing(now) as tx:
            people.put_api_token(tx, token, user, expires)

    def drop_api_tokens(self, user: str, now: datetime) -> int:
        with self._writing(now) as tx:
            return people.drop_api_tokens(tx, user)

    def by_api_token(self, token: str, now: datetime) -> Person | None:
        with self._reading() as connection:
            return people.by_api_token(connection, token, now)

    def put_join_token(  # noqa: PLR0917 - what a token is
        self,
        token: str,
        cluster: ClusterName,
        uses: int,
        expires: datetime,
        now: datetime,
        node: NodeName | None = None,
    ) -> None:
        """`node`: the only one it is good for, also when that one is enrolled already."""
        with self._writing(now) as tx:
            people.put_join_token(tx, token, cluster, uses, expires, node)

    def enrol(self, join_token: str, key: NodeKey, node_token: str, now: datetime) -> Joined | None:
        """Use up one use of a join token; None when it is not good for this node, TAKEN (and not used
        up) when the node is enrolled and the token was not made for it.
        """
        with self._writing(now) as tx:
            return people.enrol(tx, join_token, key, node_token)

    def node_of_token(self, token: str) -> NodeKey | None:
        with self._reading() as connection:
            return people.node_of_token(connection, token)
