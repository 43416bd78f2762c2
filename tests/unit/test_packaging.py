"""What pip installs: one package, its data, and dependencies that are declared, locked, and have their reason."""

import ast
import re
import sys
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hatchling import build
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parent.parent.parent
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS: dict[str, list[str]] = PROJECT["optional-dependencies"]
LOCKS = ("broker", "build", "dev", "server")

# The module that a distribution installs, where it is not the distribution's name.
MODULES = {
    "confluent_kafka": "confluent-kafka",
    "faust": "faust-streaming",
    "markupsafe": "jinja2",  # what jinja2 returns for text that is safe already
    "mode": "faust-streaming",
    "prometheus_client": "prometheus-client",
    "requests": "jgo",  # what jgo fetches with, and whose errors it hands on
    "starlette": "fastapi",  # FastAPI's own interface hands out its requests and responses
    "yaml": "pyyaml",
    "yarl": "aiohttp",  # aiohttp's own interface takes its URLs
}
# Declared and not imported, each with its reason. Whoever writes the import takes the entry away.
NOT_IMPORTED = {
    "cramjam": "Faust's consumer loads it, to read lz4",
    "faust-streaming": "the Faust models are not there yet",
}
# What a part may import beside the base; the parts that are not named run under the server extra.
EXTRAS_OF_PART: dict[str, tuple[str, ...]] = {
    "client": (),
    "clock": (),
    "faust": ("faust",),
    "schedules": (),
    "schemas": (),
    "signing": (),
    "worker": ("worker",),
}


def _names(requirements: list[str]) -> set[str]:
    return {str(canonicalize_name(Requirement(line).name)) for line in requirements} - {"tocsin"}


BASE = _names(PROJECT["dependencies"])


def _of_extra(extra: str) -> set[str]:
    return _names(EXTRAS[extra]) | (_names(EXTRAS["worker"]) if extra == "server" else set())


def _locked(lock: str) -> dict[str, str]:
    text = (ROOT / "requirements" / f"{lock}.txt").read_text(encoding="utf-8")
    return dict(re.findall(r"^([a-z0-9][a-z0-9.-]*)==(\S+)", text, re.MULTILINE))


def _imports(module: Path) -> Iterator[tuple[int, str]]:
    """Line and top-level name of each import, those inside functions included."""
    for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))):
        match node:
            case ast.Import(names=names):
                yield from ((node.lineno, alias.name.partition(".")[0]) for alias in names)
            case ast.ImportFrom(module=str(name), level=0):
                yield node.lineno, name.partition(".")[0]
            case _:
                pass


def _allowed(part: str) -> set[str]:
    extras = EXTRAS_OF_PART.get(part, ("server", "broker"))
    return BASE.union(*(_of_extra(extra) for extra in extras))


def test_each_part_imports_only_what_its_extra_brings() -> None:
    undeclared = []
    for path in sorted((ROOT / "tocsin").rglob("*.py")):
        name = path.relative_to(ROOT / "tocsin").as_posix()
        allowed = _allowed(name.partition("/")[0].removesuffix(".py"))
        for line, module in _imports(path):
            if module in sys.stdlib_module_names or module == "tocsin":
                continue
            if canonicalize_name(MODULES.get(module, module)) not in allowed:
                undeclared.append(f"tocsin/{name}:{line}: {module}")
    assert [] == undeclared


def test_each_dependency_is_imported_or_says_why_not() -> None:
    modules = {module for path in (ROOT / "tocsin").rglob("*.py") for _, module in _imports(path)}
    imported = {str(canonicalize_name(MODULES.get(module, module))) for module in modules}
    declared = BASE.union(*(_of_extra(extra) for extra in ("server", "broker", "faust")))
    assert NOT_IMPORTED.keys() == declared - imported


def test_each_dependency_has_its_reason() -> None:
    page = (ROOT / "docs" / "decisions" / "dependencies.md").read_text(encoding="utf-8")
    reasons = {canonicalize_name(name) for name in re.findall(r"^\| ([A-Za-z0-9_-]+) \|", page, re.MULTILINE)}
    declared = BASE.union(*(_names(lines) for lines in EXTRAS.values()))
    build_only = {"editables", "hatchling", "uv"}
    assert declared | build_only == reasons - {"name"}


@pytest.mark.parametrize("lock", LOCKS)
def test_each_locked_package_has_a_hash_and_no_address(lock: str) -> None:
    text = (ROOT / "requirements" / f"{lock}.txt").read_text(encoding="utf-8")
    assert _locked(lock)
    for block in re.split(r"\n(?=\S)", text):
        if "==" in block:
            assert "--hash=sha256:" in block, block
    assert "://" not in text
    assert not re.search(r"^--", text, re.MULTILINE), "an option of the machine that made the lock"


def test_the_locks_agree() -> None:
    server, dev, tools = _locked("server"), _locked("dev"), _locked("build")
    broker = _locked("broker")
    assert server.items() <= broker.items() <= dev.items()
    assert [] == [name for name in tools.keys() & dev.keys() if tools[name] != dev[name]]


def test_the_locks_hold_what_is_declared() -> None:
    # `make lock` after a change of pyproject.toml is easily forgotten.
    dev = _locked("dev")
    for line in [*PROJECT["dependencies"], *(line for lines in EXTRAS.values() for line in lines)]:
        requirement = Requirement(line)
        name = canonicalize_name(requirement.name)
        if name == "tocsin":
            continue
        assert name in dev, f"{line} is not in requirements/dev.txt: run `make lock`"
        assert requirement.specifier.contains(dev[name]), (
            f"{line}, but locked is {dev[name]}: run `make lock`"
        )
    assert BASE | _of_extra("server") <= _locked("server").keys()
    assert BASE | _of_extra("server") | _of_extra("broker") <= _locked("broker").keys()


def test_the_lock_holds_the_croniter_that_faust_allows() -> None:
    assert _locked("dev")["croniter"].startswith("5.")


def test_the_wheel_holds_the_package_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    with zipfile.ZipFile(tmp_path / build.build_wheel(str(tmp_path))) as wheel:
        names = set(wheel.namelist())
    assert {"tocsin", "tocsin-0.1.0.dist-info"} == {name.partition("/")[0] for name in names}
    assert "tocsin/py.typed" in names
    data = {
        path
        for path in (ROOT / "tocsin").rglob("*")
        if path.is_file() and path.suffix in {".avsc", ".html", ".lock", ".py"}
    }
    assert {path.relative_to(ROOT).as_posix() for path in data} <= names
