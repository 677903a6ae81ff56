"""Node lists: what people write is what is meant, and folding loses nothing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from komainu.core.errors import NodeSetError
from komainu.core.nodeset import MAX_NODES, expand, fold

_NAMES = st.from_regex(
    r"[A-Za-z_][A-Za-z_.\-]{0,3}[0-9]{0,4}([a-z\-]{1,2}[0-9]{1,3})?", fullmatch=True
)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("", ()),
        ("login", ("login",)),
        ("n[1-3]", ("n1", "n2", "n3")),
        ("n[08-11]", ("n08", "n09", "n10", "n11")),
        ("n[9-10]", ("n9", "n10")),
        ("node[1-2,032]", ("node1", "node2", "node032")),
        ("n[0-6/3],n3", ("n0", "n3", "n6")),
        ("r[1-2]n[1-2]", ("r1n1", "r1n2", "r2n1", "r2n2")),
        ("gpu-a[1, 3]-ib0 , login1", ("gpu-a1-ib0", "gpu-a3-ib0", "login1")),
    ],
)
def test_a_written_list_names_these_nodes(text: str, names: tuple[str, ...]) -> None:
    assert expand(text) == names


@pytest.mark.parametrize(
    ("names", "text"),
    [
        ([], ""),
        (["n2", "n1", "n3", "n10"], "n[1-3,10]"),
        (["n08", "n09", "n10"], "n[08-10]"),
        (["n1", "n01"], "n[1,01]"),
        (["n9", "n10", "n10", "login"], "login,n[9-10]"),
        (["r1n1", "r1n2", "r2n1", "r2n2"], "r[1-2]n[1-2]"),
        (["r1n1", "r2n2"], "r1n1,r2n2"),
        (["n10", "n2b", "m1"], "m1,n2b,n10"),
    ],
)
def test_names_are_folded_so(names: list[str], text: str) -> None:
    assert fold(names) == text


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("n[1-3", "n[1-3"),
        ("n]1[", "n]1["),
        ("n[3-1]", "n[3-1]"),
        ("n[1-3/0]", "n[1-3/0]"),
        ("n[a-b]", "n[a-b]"),
        ("n[]", "n[]"),
        ("n[1--3]", "n[1--3]"),
        ("ok1,,ok2", "ok1,,ok2"),
        ("ok1,-rf", "-rf"),
        ("ok1,$(reboot)", "$(reboot)"),
        ("n[٣]", "n[٣]"),
    ],
)
def test_a_bad_part_is_named(text: str, part: str) -> None:
    with pytest.raises(NodeSetError) as caught:
        expand(text)
    assert repr(part) in str(caught.value)


@pytest.mark.parametrize(
    "text", ["n[0-999999999999]", "n[0-999999]m[0-999999]", "a[1-9]b[1-999999]"]
)
def test_a_list_too_long_for_any_cluster_is_refused_at_once(text: str) -> None:
    with pytest.raises(NodeSetError, match=str(MAX_NODES)):
        expand(text)


@given(st.sets(_NAMES))
def test_folding_and_expanding_gives_the_same_names(names: set[str]) -> None:
    assert set(expand(fold(names))) == names


@given(st.lists(_NAMES))
def test_the_order_of_names_does_not_matter(names: list[str]) -> None:
    assert fold(names) == fold(reversed(names)) == fold(set(names))


@given(st.sets(st.integers(0, 10**6), min_size=1))
def test_folding_numbers_never_makes_more_parts_than_names(numbers: set[int]) -> None:
    assert len(fold(f"n{n}" for n in numbers).split(",")) <= len(numbers)
