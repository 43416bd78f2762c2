"""Record the schemas that changed as new versions: `.venv/bin/python -m tests.unit.schemas.record_versions`.

A version that was never part of a release is replaced instead: `... record_versions --amend`.
"""

import json
import sys
from pathlib import Path
from typing import Any

from tests.unit.schemas.evolution import breaks
from tocsin.schemas import registry

HISTORY = Path(registry.__file__).parent / "history"
NAMES = tuple(cls.__name__ for cls in (*registry.RECORDS, *registry.ROWS))
COMMAND = "python -m tests.unit.schemas.record_versions"


def main(arguments: list[str]) -> int:
    amend = arguments == ["--amend"]
    if arguments and not amend:
        sys.stderr.write(f"usage: {COMMAND} [--amend]\n")
        return 2
    refused = 0
    for name in NAMES:
        now, versions = registry.without_docs(registry.schema_of(name)), registry.recorded(name)
        newest = max(versions, default=0)
        if versions.get(newest) == now:
            continue
        number = max(newest, 1) if amend else newest + 1
        wrong = breaks(versions[number - 1], now) if number - 1 in versions else []
        for why in wrong:
            sys.stderr.write(f"{name}: not recorded: {why}\n")
        refused += len(wrong)
        if not wrong:
            _write(name, number, now)
            sys.stdout.write(f"{name}: version {number}\n")
    return 1 if refused else 0


def _write(name: str, number: int, schema: dict[str, Any]) -> None:
    folder = HISTORY / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{number}.avsc").write_text(json.dumps(schema, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
