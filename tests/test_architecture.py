"""ARCHITECTURE.md is true: its map is the tree, its arrows are the ones the linter enforces."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from configparser import ConfigParser
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "komainu"
TEXT = (ROOT / "ARCHITECTURE.md").read_text("utf-8")
STEPS_THAT_THINK = {"model", "detect", "decide", "learn"}
THINKING = STEPS_THAT_THINK | {"core"}
STEPS = STEPS_THAT_THINK | {"collect", "act", "pages", "commands"}
ROOMS = {"health", "quarantine", "inventory", "jobs"}


def mapped() -> dict[str, set[str]]:
    """Folder → what the map says is in it."""
    rows = re.findall(r"^\| `([^`]+)` \| ([^|]*) \| [^|]* \|$", TEXT, flags=re.MULTILINE)
    return {folder.strip("/"): set(re.findall(r"`([^`]+)`", files)) for folder, files in rows}


def standing() -> dict[str, set[str]]:
    """Folder → modules and subfolders that stand in it. Below the first level, only the top counts."""
    found: dict[str, set[str]] = {"": set()}
    for path in sorted(SOURCE.iterdir()):
        if path.suffix == ".py" and path.stem not in {"__init__", "__main__"}:
            found[""].add(path.name)
        elif (path / "__init__.py").exists():
            found[path.name] = set(contents(path))
    return {folder or "komainu": files for folder, files in found.items()}


def contents(folder: Path) -> Iterator[str]:
    for path in folder.iterdir():
        if path.suffix == ".py" and path.stem != "__init__":
            yield path.name
        elif path.is_dir() and path.name not in {"__pycache__", "node_modules"}:
            yield path.name + "/"


def test_the_map_is_the_tree() -> None:
    assert mapped() == standing()


def test_the_arrows_are_the_ones_enforced() -> None:
    linter = ConfigParser()
    linter.read(ROOT / ".importlinter")
    layers = linter["importlinter:contract:arrows"]["layers"].replace("komainu.", "")
    drawn = re.search(r"## Arrows.*?```text\n(.*?)```", TEXT, flags=re.DOTALL)
    assert drawn is not None
    assert drawn[1].split("\n") == [*layers.strip().split("\n"), ""]


BESIDE = {
    "health/catalogue": "data: the fault codes",
    "health/runbooks": "data: which page explains a code",
    "inventory/story": "pages: a node's history told from rows, pure",
}
"""Files of rooms that are no step, each with its reason."""


def test_rooms_hold_steps_and_nothing_else() -> None:
    tree = standing()
    extra = {
        f"{room}/{name}"
        for room in ROOMS
        for name in {file.removesuffix(".py").rstrip("/") for file in tree[room]} - STEPS
    }
    assert extra == set(BESIDE)


def thinking_files() -> list[Path]:
    return sorted(
        path
        for path in SOURCE.rglob("*.py")
        if path.stem in THINKING or THINKING & set(path.parent.relative_to(SOURCE).parts)
    )


def test_there_are_thinking_files() -> None:
    names = {str(path.relative_to(SOURCE)) for path in thinking_files()}
    assert {"core/verdict.py", "health/detect/xid.py", "quarantine/decide/guard.py"} <= names


@pytest.mark.parametrize("path", thinking_files(), ids=lambda path: str(path.relative_to(SOURCE)))
def test_thinking_neither_opens_nor_prints(path: Path) -> None:
    tree = ast.parse(path.read_text("utf-8"))
    named = {
        node.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
    }
    assert not named & {"open", "print", "input", "breakpoint", "exec", "eval", "__import__"}
    asked = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    assert not asked & {"now", "utcnow", "today", "read_text", "read_bytes", "write_text"}


READS_THE_CATALOGUE = ["health/detect/correlate.py", "health/detect/reading.py"]
"""The one thing a thinking file gets by asking and not as an argument; ARCHITECTURE.md says why."""


def test_only_the_named_files_ask_for_the_catalogue() -> None:
    asking = [
        str(path.relative_to(SOURCE))
        for path in thinking_files()
        if "komainu.health.catalogue" in imported(path)
    ]
    assert asking == READS_THE_CATALOGUE
    assert all(f"`{name}`" in TEXT for name in asking)


def test_the_catalogue_is_read_from_the_release_and_nowhere_else() -> None:
    reader = SOURCE / "health" / "catalogue" / "__init__.py"
    outside = {name for name in imported(reader) if not name.startswith("komainu.")}
    assert outside == {"__future__", "functools", "importlib.resources", "msgspec"}


def imported(path: Path) -> set[str]:
    tree = ast.parse(path.read_text("utf-8"))
    names = {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    return names | {
        alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.Import)
        for alias in node.names
    }


def test_no_file_has_outgrown_one_idea() -> None:
    """450 lines is where to look for the seam; a file may be excused here, with its reason."""
    excused: dict[str, str] = {}
    long = {
        str(path.relative_to(SOURCE))
        for path in SOURCE.rglob("*.py")
        if len(path.read_text("utf-8").splitlines()) > 450
    }
    assert long == set(excused)
