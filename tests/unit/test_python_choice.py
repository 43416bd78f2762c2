"""`make env` on a machine whose Python is missing, too old, too new, or has no venv: what it says and what it takes."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

CHOOSER = Path(__file__).parent.parent.parent / ".ci" / "venv"

# Answers the questions of .ci/venv as a Python of that version does; `-m venv` leaves a mark.
INTERPRETER = """#!/bin/sh
case "$*" in
    *"%d.%d.%d"*) echo {version} ;;
    *"* 100"*) echo {number} ;;
    *"import ensurepip"*) exit {venv_missing} ;;
    "-m venv --clear "*) mkdir -p "$4" && echo {version} > "$4/made-by" && exit {venv_fails} ;;
    *) exit 9 ;;
esac
"""


class Machine:
    """A PATH with nothing on it but what a test puts there."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "bin"
        self.path.mkdir()
        self.venv = folder / "venv"
        for tool in ("cat", "mkdir", "rm"):
            (self.path / tool).symlink_to(shutil.which(tool) or tool)

    def has(self, name: str, version: str, *, venv_missing: int = 0, venv_fails: int = 0) -> None:
        major, minor, _ = version.split(".")
        text = INTERPRETER.format(
            version=version,
            number=int(major) * 100 + int(minor),
            venv_missing=venv_missing,
            venv_fails=venv_fails,
        )
        (self.path / name).write_text(text, encoding="utf-8")
        (self.path / name).chmod(0o755)

    def run(self, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["/bin/sh", str(CHOOSER), str(self.venv)],
            env={"PATH": str(self.path), **environment},
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )

    def made_by(self) -> str | None:
        mark = self.venv / "made-by"
        return mark.read_text(encoding="utf-8").strip() if mark.exists() else None


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_without_any_python_it_says_what_to_install(machine: Machine) -> None:
    result = machine.run()
    assert result.returncode == 1
    assert "Tocsin needs Python 3.11 or newer" in result.stderr
    assert "none of these is on the PATH" in result.stderr
    assert "apt install python3 python3-venv" in result.stderr
    assert machine.made_by() is None


def test_a_python_that_is_too_old_is_named(machine: Machine) -> None:
    machine.has("python3", "3.9.2")
    result = machine.run()
    assert result.returncode == 1
    assert "python3 is Python 3.9.2: too old" in result.stderr
    assert machine.made_by() is None


def test_an_old_default_is_passed_over_for_a_newer_one_beside_it(machine: Machine) -> None:
    machine.has("python3", "3.9.2")
    machine.has("python3.12", "3.12.1")
    assert machine.run().returncode == 0
    assert machine.made_by() == "3.12.1"


def test_the_default_is_taken_where_it_will_do(machine: Machine) -> None:
    machine.has("python3", "3.11.7")
    machine.has("python3.13", "3.13.0")
    assert machine.run().returncode == 0
    assert machine.made_by() == "3.11.7"


def test_a_shim_without_a_python_behind_it_is_passed_over(machine: Machine) -> None:
    (machine.path / "python3").write_text("#!/bin/sh\necho 'not installed' >&2\nexit 127\n", encoding="utf-8")
    (machine.path / "python3").chmod(0o755)
    machine.has("python3.11", "3.11.2")
    assert machine.run().returncode == 0
    assert machine.made_by() == "3.11.2"


def test_a_python_without_venv_is_named_with_the_package_that_has_it(machine: Machine) -> None:
    machine.has("python3", "3.11.2", venv_missing=1)
    result = machine.run()
    assert result.returncode == 1
    assert "apt install python3.11-venv" in result.stderr


def test_a_venv_that_could_not_be_made_leaves_nothing_behind(machine: Machine) -> None:
    machine.has("python3", "3.11.2", venv_fails=1)
    result = machine.run()
    assert result.returncode == 1
    assert "apt install python3.11-venv" in result.stderr
    assert not machine.venv.exists()


def test_a_python_newer_than_the_locks_is_taken_only_when_named(machine: Machine) -> None:
    machine.has("python3", "3.99.0")
    result = machine.run()
    assert result.returncode == 1
    assert "PYTHON=python3 tries it" in result.stderr
    assert machine.run(PYTHON=str(machine.path / "python3")).returncode == 0
    assert machine.made_by() == "3.99.0"


def test_the_chooser_can_be_run(machine: Machine) -> None:
    assert os.access(CHOOSER, os.X_OK)
