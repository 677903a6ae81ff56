"""Write docs/reference/configuration.md and commands.md from the code they describe.

python -m tests.reference            write them
python -m tests.reference --check    exit 1 when one is not what the code says
"""

from __future__ import annotations

import ast
import inspect
import itertools
import re
import sys
import textwrap
from pathlib import Path
from typing import Any

import click
import msgspec

from komainu import cli
from komainu.config import Config

REFERENCE = Path(__file__).parents[1] / "docs" / "reference"
WRITTEN = "<!-- Written by `python -m tests.reference`; change the code, not this page. -->\n"


def sentences(struct: type) -> dict[str, str]:
    """The docstring below each field of a Struct, which only its source shows."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(struct)))
    body = tree.body[0].body if isinstance(tree.body[0], ast.ClassDef) else []
    found: dict[str, str] = {}
    for field, text in itertools.pairwise(body):
        if (
            isinstance(field, ast.AnnAssign)
            and isinstance(field.target, ast.Name)
            and isinstance(text, ast.Expr)
            and isinstance(text.value, ast.Constant)
        ):
            found[field.target.id] = " ".join(str(text.value.value).split())
    return found


def type_words(kind: msgspec.inspect.Type) -> str:  # noqa: PLR0911 (one line for each type)
    """A type as an operator would say it."""
    match kind:
        case msgspec.inspect.IntType(ge=low):
            return f"integer ≥ {low}" if low is not None else "integer"
        case msgspec.inspect.FloatType(gt=low, le=high):
            return f"number, {low} < x ≤ {high}" if low is not None else "number"
        case msgspec.inspect.BoolType():
            return "true or false"
        case msgspec.inspect.LiteralType(values=values):
            return " or ".join(f"`{value}`" for value in values)
        case msgspec.inspect.VarTupleType(item_type=item):
            return f"list of {type_words(item)}"
        case msgspec.inspect.DictType(key_type=key, value_type=value):
            return f"table of {type_words(key)} → {type_words(value)}"
    return "path" if isinstance(kind, msgspec.inspect.CustomType) else "text"


def shown(value: Any) -> str:
    """A default as it would stand in the file."""
    if value is msgspec.NODEFAULT:
        return "required"
    if isinstance(value, Path):
        value = str(value)
    if value in ({}, ()):
        return "empty"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    return f'`"{value}"`' if isinstance(value, str) else f"`{value}`"


def section(name: str, struct: Any, header: str) -> list[str]:
    """One table of komainu.toml, and the tables inside it."""
    told = sentences(struct.cls)
    about = " ".join((struct.cls.__doc__ or "").split())
    lines = [
        f"## `{header}`",
        "",
        about,
        "",
        "| key | type | default | meaning |",
        "|---|---|---|---|",
    ]
    inner: list[str] = []
    for field in struct.fields:
        if isinstance(field.type, msgspec.inspect.StructType):
            inner += ["", *section(field.name, field.type, f"[{name}.{field.name}]")]
            continue
        default = field.default
        if field.default_factory is not msgspec.NODEFAULT:
            default = field.default_factory()
        meaning = told[field.name].replace("|", "\\|")
        lines.append(
            f"| `{field.name}` | {type_words(field.type)} | {shown(default)} | {meaning} |"
        )
    return lines + inner


def configuration() -> str:
    """The page about komainu.toml."""
    whole: Any = msgspec.inspect.type_info(Config)
    lines = [
        "# Configuration",
        "",
        WRITTEN,
        (
            "One file, `komainu.toml`: named with `--config`, else by `$KOMAINU_CONFIG`, else "
            "`/etc/komainu/komainu.toml`. Every key has a default; an unknown key stops the start. "
            "Secrets are never in it, only paths of files that hold them."
        ),
    ]
    for field in whole.fields:
        if isinstance(field.type, msgspec.inspect.VarTupleType):
            lines += ["", *section(field.name, field.type.item_type, f"[[{field.name}]]")]
        else:
            lines += ["", *section(field.name, field.type, f"[{field.name}]")]
    return "\n".join(lines) + "\n"


def help_text(command: click.Command, name: str, above: click.Context | None = None) -> list[str]:
    """One command's help, then its subcommands'. In its real context: -h is inherited from above."""
    # click keeps the help option of the context that asked first: of a test that ran a command alone.
    command._help_option = None
    context = click.Context(
        command,
        info_name=name,
        parent=above,
        max_content_width=88,
        terminal_width=88,
        **command.context_settings,
    )
    text = re.sub(r"[ \t]+$", "", command.get_help(context), flags=re.MULTILINE)
    lines = ["", f"## `{context.command_path}`", "", "```text", text, "```"]
    if isinstance(command, click.Group):
        for inner_name in command.list_commands(context):
            inner = command.get_command(context, inner_name)
            if inner is not None:
                lines += help_text(inner, inner_name, context)
    return lines


def commands() -> str:
    """The page about the command line."""
    lines = ["# Commands", "", WRITTEN, "Exit codes: 0 fine, 1 findings, 2 could not tell."]
    return "\n".join(lines + help_text(cli.komainu, "komainu")) + "\n"


PAGES = {"configuration.md": configuration, "commands.md": commands}


def main() -> int:
    """Write the pages, or with --check tell which differ."""
    check = "--check" in sys.argv[1:]
    stale = []
    for name, make in PAGES.items():
        page, text = REFERENCE / name, make()
        if page.exists() and page.read_text("utf-8") == text:
            continue
        stale.append(name)
        if not check:
            page.write_text(text, "utf-8")
            print(f"wrote docs/reference/{name}")
    if check and stale:
        print(f"{', '.join(stale)}: not what the code says. Run: python -m tests.reference")
    return 1 if check and stale else 0


if __name__ == "__main__":
    raise SystemExit(main())
