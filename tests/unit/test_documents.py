"""A command that the documents tell people to type exists, with its options."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from tocsin.cli.app import app

ROOT = Path(__file__).parent.parent.parent
PAGES = [ROOT / "README.md", ROOT / "docker-compose.yml", *sorted((ROOT / "docs").rglob("*.md"))]

# At the start of a line of code, in backticks, or as the words of `docker compose exec`.
COMMAND = re.compile(
    r"(?:^ {4}(?:\.venv/bin/)?|`(?:\.venv/bin/)?|exec (?:-T )?(?:--index \S+ )?[a-z]+ )(tocsin [a-z][^`\n]*)", re.MULTILINE
)


def _commands() -> Iterator[tuple[str, str]]:
    for page in PAGES:
        for command in COMMAND.findall(page.read_text(encoding="utf-8")):
            yield page.relative_to(ROOT).as_posix(), command


def _resolve(words: list[str]) -> tuple[Any, list[str]]:
    """The command that the words lead to, and the words that are left."""
    found: Any = typer.main.get_command(app)
    while words and hasattr(found, "get_command"):
        context = found.make_context(found.name, list(words), resilient_parsing=True)
        inner = found.get_command(context, words[0])
        if inner is None:
            break
        found, words = inner, words[1:]
    return found, words


def _unknown(command: str) -> str | None:
    words = re.sub(r"[\[\]|]", " ", command).split()[1:]
    found, rest = _resolve(words)
    if hasattr(found, "get_command") and rest:
        return f"no command {rest[0]}"
    known = {
        option
        for parameter in getattr(found, "params", ())
        for option in (*parameter.opts, *parameter.secondary_opts)
    }
    options = {word.partition("=")[0] for word in rest if re.fullmatch(r"--?[a-z][a-z-]*(?:=.*)?", word)}
    return f"no option {', '.join(sorted(options - known))}" if options - known else None


def test_the_readme_and_the_pages_name_commands_to_type() -> None:
    assert {("README.md", "tocsin sink"), ("docker-compose.yml", "tocsin sink")} <= set(_commands())


def test_each_command_in_the_documents_exists_with_its_options() -> None:
    wrong = [f"{page}: {command}: {what}" for page, command in _commands() if (what := _unknown(command))]
    assert [] == wrong


def test_a_command_that_does_not_exist_would_be_found() -> None:
    assert _unknown("tocsin jobs aply -f x") == "no command aply"
    assert _unknown("tocsin jobs list --sort") == "no option --sort"
