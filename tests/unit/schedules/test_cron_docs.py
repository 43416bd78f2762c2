"""The pages on cron say what is so."""

import io
import json
import re
from collections import Counter
from pathlib import Path

from tocsin.cli.cron import _batch
from tocsin.schedules import Cron, parse_instant, spread_offset

ROOT = Path(__file__).parents[3]
CRON_PAGE = (ROOT / "docs" / "cron.md").read_text(encoding="utf-8")


def test_the_attribution_lists_every_source_with_its_number_of_cases() -> None:
    cases = json.loads((ROOT / "tests" / "data" / "cron_cases.json").read_text(encoding="utf-8"))
    sources = Counter(re.split(r"[ ;]", case["source"])[0] for case in cases)
    authored = sources.pop("authored")
    page = (ROOT / "docs" / "attribution.md").read_text(encoding="utf-8")
    listed = dict(
        re.findall(r"^\| \[.*?\]\(https://github\.com/(\S+)\) \| .* \| (\d+) \|$", page, re.MULTILINE)
    )
    assert {name: str(number) for name, number in sources.items()} == listed
    assert f"The other {authored} cases" in page


def test_the_batch_on_the_page_answers_as_the_page_says() -> None:
    asked, answer = re.findall(r"^    (\{.*\})$", CRON_PAGE, re.MULTILINE)
    written = io.BytesIO()
    _batch(io.BytesIO(asked.encode()), written)
    assert json.loads(answer) == json.loads(written.getvalue())


def test_the_spread_on_the_page_is_the_spread() -> None:
    assert (
        f"For `billing/send-invoices` and 10 minutes: {spread_offset('billing/send-invoices', 600_000)}."
        in CRON_PAGE
    )


def test_the_page_counts_right() -> None:
    assert "`0 0 31 * *` has seven fires a year" in CRON_PAGE
    year = parse_instant("2025-12-31T12:00Z"), parse_instant("2026-12-31T12:00Z")
    assert (7, False) == Cron("0 0 31 * *").count(*year)
    assert "`0 0 */2 * MON` is the Mondays with an odd date" in CRON_PAGE
    days = [fire // 86_400_000 for fire in Cron("0 0 */2 * MON").fires(*year)]
    odd_mondays = [
        fire // 86_400_000
        for fire in Cron("0 0 * * MON").fires(*year)
        if Cron("0 0 1-31/2 * *").next(fire - 1) == fire
    ]
    assert odd_mondays == days
