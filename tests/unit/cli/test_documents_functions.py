"""docs/functions.md: its module is imported, its jobs are checked and applied, its functions run as it says."""

import asyncio
import importlib.util
import re
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.unit.cli.conftest import LIMIT_S, Served
from tests.unit.worker.endpoints import execution
from tocsin.client.functions import FunctionRegistry, registry
from tocsin.clock import SystemClock
from tocsin.schemas.document import parse
from tocsin.schemas.job import FunctionTarget
from tocsin.worker.execution import RESPONSE_BYTES_MAX, Outcome
from tocsin.worker.functions import FunctionCaller

PAGE = (Path(__file__).parents[3] / "docs" / "functions.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
TEXTS = dict(BLOCKS)


@pytest.fixture
def caller(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FunctionCaller]:
    """Calls what the page's module registers, and nothing else."""
    monkeypatch.setattr(registry, "_functions", FunctionRegistry()._functions)
    file = tmp_path / "my_functions.py"
    file.write_text(TEXTS["python"], encoding="utf-8")
    spec = importlib.util.spec_from_file_location("my_functions", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "my_functions", module)
    spec.loader.exec_module(module)
    made = FunctionCaller(clock=SystemClock(), registry=registry)
    yield made
    made.close()


async def _call(caller: FunctionCaller, name: str, arguments: bytes, attempt: int = 1) -> Outcome:
    target = FunctionTarget(name=name, arguments=arguments)
    given = execution(target)
    given = replace(given, run=replace(given.run, attempt=attempt))
    return await asyncio.wait_for(caller.call(given, target), LIMIT_S)


def test_the_page_has_a_module_and_jobs_and_nothing_that_is_not_run_here() -> None:
    assert ["python", "yaml"] == [language for language, _ in BLOCKS]


@pytest.mark.asyncio
async def test_the_jobs_of_the_page_call_functions_of_its_module(caller: FunctionCaller) -> None:
    documents: list[dict[str, Any]] = list(yaml.safe_load_all(TEXTS["yaml"]))
    assert 3 == len(documents)
    for document in documents:
        job, misread = parse(document)
        assert job is not None, misread
        assert job.function is not None
        outcome = await _call(caller, job.function.name, job.function.arguments, attempt=2)
        assert "succeeded" == outcome.kind, outcome.error


def test_the_jobs_of_the_page_are_applied(served: Served) -> None:
    done = served.run("jobs", "apply", "-f", "-", stdin=TEXTS["yaml"])
    assert (0, 3) == (done.code, done.out.count("created")), done.err
    assert "queue functions has no worker here" in done.err


@pytest.mark.asyncio
async def test_the_functions_of_the_page_end_as_it_says(caller: FunctionCaller) -> None:
    assert (
        "'invoices of today for eu sent'"
        == (await _call(caller, "send_invoices", b'{"day": "today"}')).response
    )
    assert "{'attempt': 3}" == (await _call(caller, "reports.nightly", b"{}", attempt=3)).response
    never = await _call(caller, "charge", b'{"card": "x"}')
    assert ("failed", False) == (never.kind, never.retryable)
    later = await _call(caller, "charge", b'{"card": "1"}')
    assert ("failed", True, 90_000) == (later.kind, later.retryable, later.retry_after_ms)
    unfit = await _call(caller, "send_invoices", b'{"month": 1}')
    assert ("failed", False) == (unfit.kind, unfit.retryable)
    unknown = await _call(caller, "nobody", b"{}")
    assert (True, "unknown_function") == (unknown.retryable, unknown.error.split(":")[0])
    assert "7" == (await _call(caller, "rebuild", b'{"parts": 7}')).response


def test_the_page_names_the_limit_of_a_result_as_it_is() -> None:
    assert f"The first {RESPONSE_BYTES_MAX:,} bytes" in PAGE
