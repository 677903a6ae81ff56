from __future__ import annotations

import pytest
from tests.store.samples import KEY, NOW, C, batch, later

from komainu.core.errors import InputError
from komainu.core.names import ClusterName, NodeKey, NodeName
from komainu.core.record import Joined, Person
from komainu.inventory.story import story
from komainu.store import SqlStore


def test_a_session_lasts_until_it_expires_or_ends(store: SqlStore) -> None:
    store.put_user("ann", "operator", "hash", NOW)
    store.open_session("s1", "ann", "csrf", later(60), NOW)
    assert store.by_session("s1", later(59)) == Person(name="ann", role="operator", csrf="csrf")
    assert store.by_session("s1", later(60)) is None
    store.close_session("s1", NOW)
    assert store.by_session("s1", NOW) is None


def test_a_new_password_or_role_ends_the_sessions(store: SqlStore) -> None:
    store.put_user("ann", "operator", "hash", NOW)
    store.open_session("s1", "ann", "csrf", later(60), NOW)
    store.put_user("ann", "viewer", "other", NOW)
    assert store.by_session("s1", NOW) is None
    assert store.password_of("ann") == ("viewer", "other")


def test_a_removed_account_leaves_no_way_in(store: SqlStore) -> None:
    store.put_user("ann", "operator", "hash", NOW)
    store.open_session("s1", "ann", "csrf", later(60), NOW)
    store.put_api_token("t1", "ann", NOW)
    assert store.drop_user("ann", NOW)
    assert not store.drop_user("ann", NOW)
    assert store.by_session("s1", NOW) is None
    assert store.by_api_token("t1", NOW) is None
    assert store.users() == []


def test_an_api_token_has_its_accounts_role_and_may_expire(store: SqlStore) -> None:
    store.put_user("ann", "viewer", "hash", NOW)
    store.put_api_token("t1", "ann", NOW, later(60))
    assert store.by_api_token("t1", later(59)) == Person(name="ann", role="viewer")
    assert store.by_api_token("t1", later(60)) is None
    with pytest.raises(InputError, match="no account"):
        store.put_api_token("t2", "nobody", NOW)
    assert store.drop_api_tokens("ann", NOW) == 1
    assert store.by_api_token("t1", NOW) is None


def test_a_join_token_is_used_up(store: SqlStore) -> None:
    store.put_join_token("j", C, 1, later(60), NOW)
    other = NodeKey(C, NodeName("n2"))
    assert store.enrol("j", KEY, "node-1", NOW)
    assert not store.enrol("j", other, "node-2", NOW)
    assert store.node_of_token("node-1") == KEY
    assert store.node_of_token("node-2") is None


@pytest.mark.parametrize(("cluster", "seconds"), [("other", 0), ("c", 60)])
def test_a_join_token_is_good_for_its_cluster_and_its_time(
    store: SqlStore, cluster: str, seconds: float
) -> None:
    store.put_join_token("j", C, 9, later(60), NOW)
    key = NodeKey(ClusterName(cluster), KEY.node)
    assert not store.enrol("j", key, "node-1", later(seconds))


def test_a_node_that_was_heard_keeps_its_place(store: SqlStore) -> None:
    """A token for many nodes once let whoever held it speak for a node in service."""
    store.put_join_token("j", C, 3, later(60), NOW)
    assert store.enrol("j", KEY, "mine", NOW) is Joined.NEW
    store.receive(batch(), NOW)
    assert store.enrol("j", KEY, "theirs", NOW) is Joined.TAKEN
    assert store.node_of_token("mine") == KEY
    assert store.node_of_token("theirs") is None
    others = [store.enrol("j", NodeKey(C, NodeName(f"n{n}")), f"t{n}", NOW) for n in (2, 3, 4)]
    assert others == [Joined.NEW, Joined.NEW, None]  # what was refused has used up nothing


def test_a_join_token_made_for_a_node_is_good_for_it_alone(store: SqlStore) -> None:
    store.put_join_token("j", C, 1, later(60), NOW)
    store.enrol("j", KEY, "mine", NOW)
    store.receive(batch(), NOW)
    store.put_join_token("again", C, 1, later(60), NOW, KEY.node)
    assert store.enrol("again", NodeKey(C, NodeName("n2")), "t2", NOW) is None
    assert store.enrol("again", KEY, "anew", NOW) is Joined.AGAIN
    assert store.node_of_token("anew") == KEY
    assert store.enrol("again", KEY, "third", NOW) is None


def test_enrolling_again_replaces_the_nodes_token(store: SqlStore) -> None:
    store.put_join_token("j", C, 2, later(60), NOW)
    assert store.enrol("j", KEY, "old", NOW) is Joined.NEW
    assert store.history(KEY, 10).spoken == ()
    assert store.enrol("j", KEY, "new", NOW) is Joined.AGAIN
    assert store.node_of_token("old") is None
    assert store.node_of_token("new") == KEY
    (line,) = story(store.history(KEY, 10), 10)
    assert (line.what, line.text) == (
        "agent",
        "the agent enrolled again: its token from before is void",
    )
