"""House rules that no linter knows. Each looks at the files that git tracks."""

import ast
import os
import re
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

MODULE_LINES_MAX = 450
LONG_MODULES: dict[str, str] = {
    # path: why it is better whole
}

# The links at the root, which show the four parts that the design is known by.
LINKS = ("api", "schemas", "streams", "worker")


@cache
def _tracked() -> tuple[Path, ...]:
    command = ["git", "-c", "safe.directory=*", "-C", str(ROOT), "ls-files", "-z"]
    names = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split("\0")
    # A file may be tracked and deleted in the work tree.
    return tuple(path for name in names if name and (path := ROOT / name).is_file() and not path.is_symlink())


def _name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def _modules(*folders: str) -> list[Path]:
    return [path for path in _tracked() if path.suffix == ".py" and _name(path).startswith(folders)]


def _texts() -> Iterator[tuple[str, str]]:
    for path in _tracked():
        try:
            yield _name(path), path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue  # a picture, a recorded record


def _calls(module: Path) -> Iterator[ast.Call]:
    tree = ast.parse(module.read_text(encoding="utf-8"), filename=str(module))
    return (node for node in ast.walk(tree) if isinstance(node, ast.Call))


def _lines_with(pattern: re.Pattern[str]) -> list[str]:
    return [
        f"{name}:{number}: {line.strip()[:120]}"
        for name, text in _texts()
        if pattern.search(text)
        for number, line in enumerate(text.splitlines(), 1)
        if pattern.search(line)
    ]


def test_git_tracks_the_files_that_these_rules_look_at() -> None:
    assert {"pyproject.toml", "tests/test_tidy.py", "tocsin/clock.py"} <= {_name(path) for path in _tracked()}


def test_a_module_is_short_enough_to_be_read_at_once() -> None:
    lengths = {_name(path): len(path.read_text(encoding="utf-8").splitlines()) for path in _modules("")}
    too_long = {name: n for name, n in lengths.items() if n > MODULE_LINES_MAX}
    assert LONG_MODULES.keys() == too_long.keys(), f"modules over {MODULE_LINES_MAX} lines: {too_long}"


@pytest.mark.parametrize("name", LINKS)
def test_a_root_link_is_relative_and_leads_to_its_package(name: str) -> None:
    link = ROOT / name
    assert link.is_symlink()
    assert f"tocsin/{name}" == os.readlink(link)  # noqa: PTH115 - Path.readlink() would tidy the text it found
    assert (link / "__init__.py").is_file()


def test_only_the_command_line_writes_to_the_terminal() -> None:
    talkers = [
        f"{_name(path)}:{node.lineno}"
        for path in _modules("tocsin/")
        if not _name(path).startswith("tocsin/cli/")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if (isinstance(node, ast.Name) and node.id == "print")
        or (isinstance(node, ast.Attribute) and node.attr in {"stdout", "stderr"} and _is_sys(node.value))
    ]
    assert [] == talkers


def _is_sys(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id == "sys"


def test_a_random_source_is_seeded() -> None:
    # ruff forbids the functions of the module, and cannot tell Random() from Random(seed).
    unseeded = [
        f"{_name(path)}:{call.lineno}"
        for path in _modules("tocsin/", "tests/")
        for call in _calls(path)
        if ast.unparse(call.func) in {"random.Random", "Random"} and not (call.args or call.keywords)
    ]
    assert [] == unseeded


def test_nothing_is_left_for_later_in_a_comment() -> None:
    assert [] == _lines_with(re.compile(r"\b(?:FIX(?:ME)|TO(?:DO))\b"))


def test_no_file_names_a_path_of_somebodys_machine() -> None:
    # A slash before it, a letter or a dot: the end of a URL or of a relative path.
    pattern = re.compile(r"(?<![\w./~}-])/(?:work|root|home|Users|farm)/\w")
    assert [] == _lines_with(pattern)


def test_no_file_names_the_host_of_a_package_registry() -> None:
    of_org = r"\b(?:pypi|pythonhosted|npmjs|proxy\.golang|maven|maven\.apache|deb\.debian)\.org\b"
    assert [] == _lines_with(re.compile(of_org + r"|\b(?:crates|docker|ghcr)\.io\b"))


def test_every_decision_is_in_the_index_and_every_entry_of_the_index_exists() -> None:
    folder = ROOT / "docs" / "decisions"
    files = {path.name for path in folder.glob("*.md")} - {"README.md"}
    listed = set(re.findall(r"\]\(([\w.-]+\.md)\)", (folder / "README.md").read_text(encoding="utf-8")))
    assert files == listed


def test_a_link_in_the_documents_leads_somewhere() -> None:
    dead = [
        f"{_name(path)}: {target}"
        for path in _tracked()
        if path.suffix == ".md"
        for target in re.findall(r"\]\(([^)\s#]+)[^)]*\)", path.read_text(encoding="utf-8"))
        if "://" not in target and not (path.parent / target).exists()
    ]
    assert [] == dead


def _targets() -> set[str]:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    return set(re.findall(r"^([a-z-]+):.*## ", makefile, re.MULTILINE))


def test_make_has_the_targets_that_everybody_expects() -> None:
    expected = {
        "bench",
        "contract",
        "docs",
        "env",
        "fmt",
        "kafka",
        "lint",
        "lock",
        "sim",
        "test",
        "test-full",
    }
    assert expected | {"types", "unit", "up"} <= _targets()


def test_a_make_command_in_the_documents_exists() -> None:
    command = re.compile(r"(?:^ {4}|`)make ([a-z][a-z-]*)", re.MULTILINE)
    named = {
        (name, target) for name, text in _texts() if name.endswith(".md") for target in command.findall(text)
    }
    assert {("README.md", "up"), ("README.md", "test")} <= named
    assert [] == sorted(f"{name}: make {target}" for name, target in named if target not in _targets())


def test_ci_calls_what_developers_call() -> None:
    script = ROOT / ".ci" / "run"
    assert os.access(script, os.X_OK)
    assert "exec make test" == script.read_text(encoding="utf-8").splitlines()[-1]
