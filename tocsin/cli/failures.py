"""How a command fails: what to say, and the exit code."""

import json
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

EXIT_ENVIRONMENT: Final = 1
EXIT_INPUT: Final = 2
EXIT_INTERRUPTED: Final = 130


def called() -> str:
    """How this command was called, so that the shell finds what we tell to type: .venv/bin is on few paths."""
    command = Path(sys.argv[0])
    if command.name != "tocsin":
        return "tocsin"  # python -m tocsin.cli
    found = shutil.which("tocsin")
    return "tocsin" if found and Path(found).absolute() == command.absolute() else str(command)


class Failure(Exception):
    """A command cannot do what was asked; shown without a traceback."""

    def __init__(
        self,
        message: str,
        *,
        exit_code: int = EXIT_ENVIRONMENT,
        problem: Mapping[str, Any] | None = None,
        as_json: bool = False,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.exit_code = exit_code
        self.problem = problem
        self.as_json = as_json

    def show(self, *, as_json: bool = False) -> None:
        if self.as_json or as_json:
            problem = self.problem or {"title": self.message}
            print(json.dumps({"error": problem}, ensure_ascii=False))
        else:
            print(self.message, file=sys.stderr)


def of_problem(problem: Mapping[str, Any], status: int, *, as_json: bool) -> Failure:
    """A problem of the API: its fields as `field: message` lines, else its title and detail."""
    lines = [error_line(error) for error in problem.get("errors", ())]
    if not lines:
        title, detail = str(problem.get("title", "")), str(problem.get("detail", ""))
        lines = [detail or title or f"the node answered {status}"]
    # 401 and 403 are a matter of the environment: the key, the address.
    environment = status in (401, 403, 429) or status >= 500
    return Failure(
        "\n".join(lines),
        exit_code=EXIT_ENVIRONMENT if environment else EXIT_INPUT,
        problem=problem,
        as_json=as_json,
    )


def error_line(error: Mapping[str, Any]) -> str:
    field, message = str(error.get("field", "")), str(error.get("message", ""))
    return f"{field}: {message}" if field else message
