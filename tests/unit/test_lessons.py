"""docs/lessons.md names tests; they exist."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROWS = re.findall(
    r"^\| (K\d+) \|.*\| `(\S+?)::(\w+)` \|$", (ROOT / "docs" / "lessons.md").read_text(), re.MULTILINE
)


def test_every_row_names_a_test() -> None:
    page = (ROOT / "docs" / "lessons.md").read_text()
    assert len(re.findall(r"^\| K\d+ \|", page, re.MULTILINE)) == len(ROWS)
    assert len(ROWS) > 30


@pytest.mark.parametrize(("kind", "file", "test"), ROWS, ids=[kind for kind, _, _ in ROWS])
def test_the_test_of_a_kind_exists(kind: str, file: str, test: str) -> None:
    base = ROOT / "tests" if file.startswith(("kafka/", "node/")) else ROOT / "tests" / "unit"
    assert re.search(rf"^(async )?def {test}", (base / file).read_text(), re.MULTILINE), (
        f"{kind}: {file}::{test}"
    )
