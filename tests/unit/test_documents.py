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
    r"(?:^ {4}(?:\.venv/bin/)?|`(?:\.venv/bin/)?|exec (?:-T )?(?:--index \S+ )?[a-z]+ )(tocsin [a-z][^`\n]*)",
    re.MULTILINE,
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


# --- the synopses of docs/cli.md --------------------------------------------------------------------------------------

SYNOPSIS = re.compile(r"^ {4}(tocsin [a-z].*)$", re.MULTILINE)
OF_A_NODE = {"--url", "--json", "--no-wait"}
ON_A_KAFKA = {"--kafka", "--kafka-config", "--prefix"}


def _options(command: Any) -> dict[str, str]:
    """By every spelling of an option of the command, its first one."""
    found: dict[str, str] = {}
    for parameter in command.params:
        if parameter.param_type_name == "option" and parameter.name != "help":
            found |= dict.fromkeys((*parameter.opts, *parameter.secondary_opts), parameter.opts[0])
    return found


def _explained_once(options: set[str]) -> set[str]:
    """What the page's first table (commands that talk to a node) or the one on Kafka explains for all commands."""
    return (OF_A_NODE if "--url" in options else set()) | (ON_A_KAFKA if "--kafka" in options else set())


def _leaves(command: Any, name: str) -> Iterator[tuple[str, Any]]:
    if not hasattr(command, "list_commands"):
        yield name, command
        return
    context = command.make_context(command.name or name, ["x"], resilient_parsing=True)
    for word in command.list_commands(context):
        yield from _leaves(command.get_command(context, word), f"{name} {word}")


def _synopsis_mistakes(page: str) -> list[str]:
    """What the synopses of the page, taken together, say otherwise than the commands."""
    shown: dict[str, set[str]] = {}
    for line in SYNOPSIS.findall(page):
        words = re.sub(r"[\[\]|]", " ", line).split()
        _, rest = _resolve(words[1:])
        name = " ".join(words[: len(words) - len(rest)])
        options = {word for word in rest if re.fullmatch(r"--?[a-z][a-z-]*", word)}
        shown.setdefault(name, set()).update(options)
    mistakes = []
    for name, command in _leaves(typer.main.get_command(app), "tocsin"):
        if name not in shown:
            mistakes.append(f"{name}: no synopsis")
            continue
        spellings = _options(command)
        real = set(spellings.values())
        told = {spellings.get(word, word) for word in shown[name]}
        mistakes += [
            f"{name}: {option} is not told" for option in sorted(real - told - _explained_once(real))
        ]
        mistakes += [f"{name}: there is no {option}" for option in sorted(told - real)]
    return mistakes


def test_the_synopses_tell_of_every_option_and_of_no_other() -> None:
    assert [] == _synopsis_mistakes((ROOT / "docs" / "cli.md").read_text(encoding="utf-8"))


def test_a_synopsis_that_is_wrong_would_be_found() -> None:
    page = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    wrong = page.replace("    tocsin secrets new\n", "").replace("[--dry-run] [-q]", "[--dry] [--json]")
    assert [
        "tocsin jobs apply: --dry-run is not told",
        "tocsin jobs apply: --quiet is not told",
        "tocsin jobs apply: there is no --dry",
        "tocsin secrets new: no synopsis",
    ] == _synopsis_mistakes(wrong)
