"""The JavaScript side's own tests and types, and the bundle's size."""

from __future__ import annotations

import gzip
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BUNDLE = ROOT / "src/komainu/console/static/bundle"
HERE = Path(__file__).parent


@pytest.fixture(scope="session")
def node() -> str:
    found = shutil.which("node")
    assert found is not None, "no node on the PATH: apt-get install nodejs (Debian's 18 will do)"
    return found


def _run(*command: str) -> str:
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=55
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_core_passes_its_own_tests(node: str) -> None:
    said = _run(node, "--test", *map(str, sorted(HERE.glob("*.test.mjs"))))
    assert "fail 0" in said
    assert "pass 0" not in said


def test_every_module_holds_its_types(node: str) -> None:
    _run(node, str(ROOT / "node_modules/typescript/bin/tsc"), "--project", str(ROOT))


def test_a_wrong_type_would_be_noticed(node: str, tmp_path: Path) -> None:
    """The check above must be able to fail."""
    core = ROOT / "src/komainu/console/static/core"
    wrong = tmp_path / "wrong.mjs"
    wrong.write_text(
        f"import {{ span }} from '{core.as_posix()}/format.mjs';\nspan('not a number');\n", "utf-8"
    )
    tsc = str(ROOT / "node_modules/typescript/bin/tsc")
    options = ["--allowJs", "--checkJs", "--strict", "--noEmit", "--target", "es2022"]
    done = subprocess.run(
        [node, tsc, "--ignoreConfig", *options, "--module", "esnext", str(wrong)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=55,
    )
    assert "TS2345" in done.stdout, done.stdout + done.stderr


def test_the_bundle_stays_below_60_kib_compressed() -> None:
    size = sum(len(gzip.compress(path.read_bytes())) for path in BUNDLE.glob("*.js"))
    assert size <= 60 * 1024, f"{size} bytes"


def test_the_licences_of_what_is_bundled_lie_beside_it() -> None:
    text = (BUNDLE / "LICENSES.txt").read_text("utf-8")
    assert "preact" in text
    assert "htm " in text
    assert "MIT License" in text
    assert "Apache License" in text


def test_the_lock_names_no_host_to_fetch_from() -> None:
    assert '"resolved"' not in (ROOT / "package-lock.json").read_text("utf-8")
