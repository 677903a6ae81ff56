"""The documentation says what the code does, links to what exists, and asks nothing of the internet."""

from __future__ import annotations

import importlib
import re
import shutil
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from playwright.sync_api import sync_playwright
from tests import reference

from komainu import cli

ROOT = Path(__file__).parents[1]
PAGES = sorted((ROOT / "docs").rglob("*.md")) + sorted(ROOT.glob("*.md"))
LINK = re.compile(r"(?<!`)\[[^\]\n]*\]\(([^)\s]+)\)")


@pytest.mark.parametrize("name", sorted(reference.PAGES))
def test_the_reference_is_what_the_code_says(name: str) -> None:
    """If not: python -m tests.reference."""
    assert (reference.REFERENCE / name).read_text("utf-8") == reference.PAGES[name]()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for target in LINK.findall(page.read_text("utf-8")):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        leads_to = (page.parent / path) if path else page
        assert leads_to.exists(), f"{page.relative_to(ROOT)} links to {target}"
        if anchor and leads_to.suffix == ".md":
            headings = re.findall(r"^#+ (.*)$", leads_to.read_text("utf-8"), flags=re.MULTILINE)
            assert anchor in {slug(heading) for heading in headings}, target


def slug(heading: str) -> str:
    """As Python-Markdown's toc makes it."""
    plain = re.sub(r"[^\w\s-]", "", heading.replace("`", "")).strip().lower()
    return re.sub(r"[-\s]+", "-", plain)


def test_every_command_of_every_room_is_gathered() -> None:
    """In both directions: nothing gathered that is not there, nothing there that is not gathered."""
    source = ROOT / "src" / "komainu"
    modules = [
        ".".join(("komainu", *path.relative_to(source).with_suffix("").parts))
        for path in sorted([*source.glob("*/commands.py"), *source.glob("*/commands")])
    ]
    offered = {
        command.name: module
        for module in [*modules, "komainu.demo"]
        for command in importlib.import_module(module).COMMANDS
    }
    assert offered == cli.COMMANDS


EXAMPLE = re.compile(r"(?:^|[|;&`(] ?|sudo )komainu ([a-z][^|;&`#\n]*)", re.MULTILINE)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_command_a_page_tells_to_type_exists(page: Path) -> None:
    for words in EXAMPLE.findall(page.read_text("utf-8")):
        command: click.Command = cli.komainu
        context = click.Context(cli.komainu)
        rest = words.split()
        while rest and isinstance(command, click.Group) and re.fullmatch(r"[a-z-]+", rest[0]):
            found = command.get_command(context, rest.pop(0))
            assert found is not None, f"{page.name}: there is no `komainu {words.strip()}`"
            command = found
        known = {option for parameter in command.params for option in parameter.opts}
        known |= {option for parameter in command.params for option in parameter.secondary_opts}
        typed = {word.partition("=")[0] for word in rest if re.match(r"--[a-z]", word)}
        assert typed <= known | {"--help"}, f"{page.name}: `komainu {words.strip()}`"


def test_pages_tell_to_type_something() -> None:
    told = [words for page in PAGES for words in EXAMPLE.findall(page.read_text("utf-8"))]
    assert len(told) > 50


def test_a_typo_in_the_configuration_is_one_clear_line(tmp_path: Path) -> None:
    bad = tmp_path / "komainu.toml"
    bad.write_text("[server]\nlisten_on = 'x'\n", "utf-8")
    done = CliRunner().invoke(cli.komainu, ["--config", str(bad), "nodes"])
    assert done.exit_code == 2
    assert "listen_on" in done.output
    assert "Traceback" not in done.output


def test_explain_starts_without_the_server_s_libraries() -> None:
    """It runs in a pipe on a compute node, where only the agent's three packages exist."""
    heavy = ("starlette", "uvicorn", "sqlalchemy", "httpx2", "alembic", "jinja2")
    code = (
        "import sys; from click.testing import CliRunner; from komainu import cli;"
        "CliRunner().invoke(cli.komainu, ['explain'], input='x');"
        f"print([name for name in {heavy!r} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_every_decision_is_listed_and_numbered_without_gaps() -> None:
    folder = ROOT / "docs" / "decisions"
    names = sorted(path.name for path in folder.glob("[0-9]*.md"))
    assert [int(name[:3]) for name in names] == list(range(len(names)))
    listed = re.findall(r"\(([0-9]{3}-[^)]+\.md)\)", (folder / "index.md").read_text("utf-8"))
    assert listed == names


@pytest.mark.browser
@pytest.mark.timeout(120)
def test_the_built_site_fetches_nothing_from_elsewhere(tmp_path: Path) -> None:
    """Asked of a browser: what a page's scripts fetch does not stand in the page."""
    shutil.copytree(ROOT / "docs", tmp_path / "docs")
    shutil.copytree(ROOT / "docs-theme", tmp_path / "docs-theme")
    shutil.copy(ROOT / "mkdocs.yml", tmp_path)
    subprocess.run(
        [Path(sys.executable).parent / "zensical", "build", "--clean"],
        cwd=tmp_path,
        check=True,
        capture_output=True,
    )
    site = tmp_path / "site"
    shown = ("index.html", "start/demo.html", "guides/console.html", "runbooks/GPU-XID-79.html")
    fetched: list[str] = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        page = browser.new_page()
        page.on("request", lambda request: fetched.append(request.url))
        for name in shown:
            page.goto((site / name).as_uri(), wait_until="networkidle")
        browser.close()
    assert len(fetched) > len(shown)
    assert [url for url in fetched if not url.startswith(("file:", "data:", "blob:"))] == []
