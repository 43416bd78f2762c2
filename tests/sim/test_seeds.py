"""Whole lives, drawn from seeds: SEEDS of them (200), beginning with FROM (0). `make sim SEEDS=1000 FROM=5000`.

A failing seed is a small, exact story: `python -m tests.sim SEED` tells it in full.
"""

import os
import subprocess
import sys
from collections import Counter
from typing import Final

import pytest

from tests.sim.scenario import run_seed

SEEDS: Final = int(os.environ.get("SEEDS") or 200)
FROM: Final = int(os.environ.get("FROM") or 0)
CHUNK: Final = 25
"""Seeds of one test: small enough to share them out between processes."""

CHUNKS: Final = [range(first, min(first + CHUNK, FROM + SEEDS)) for first in range(FROM, FROM + SEEDS, CHUNK)]


@pytest.mark.parametrize("seeds", CHUNKS, ids=[f"seeds {c.start} to {c.stop - 1}" for c in CHUNKS])
def test_no_life_violates_an_invariant(seeds: range) -> None:
    found: Counter[str] = Counter()
    for seed in seeds:
        try:
            verdict, _ = run_seed(seed)
        except Exception as error:
            error.add_note(
                f"FAILING SEED {seed}: `make sim SEEDS=1 FROM={seed}`, `python -m tests.sim {seed}`"
            )
            raise
        found += verdict.counts
    if len(seeds) == CHUNK:
        # A judge of nothing finds nothing.
        ends = ("succeeded", "failed", "cancelled", "skipped", "superseded")
        assert all(found[f"runs {end}"] for end in ends), found
        assert found["executions"] > 100
        assert found["occurrences"] > 100


def test_the_same_seed_gives_the_same_trace() -> None:
    _, first = run_seed(FROM)
    _, second = run_seed(FROM)
    assert first == second


def test_a_trace_does_not_depend_on_how_a_process_hashes() -> None:
    script = f"from tests.sim.scenario import run_seed; print(chr(10).join(run_seed({FROM})[1]))"
    traces = [
        subprocess.run(
            [sys.executable, "-c", script],
            check=True,
            capture_output=True,
            text=True,
            env={**os.environ, "PYTHONHASHSEED": str(hash_seed)},
        ).stdout
        for hash_seed in (1, 2)
    ]
    assert traces[0] == traces[1]
    assert len(traces[0].splitlines()) > 50
