"""The policies: when to try again, what is missed, and which open runs stand in an occurrence's way."""

from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.streams.rows import T0, run_row
from tocsin.schemas.job import CatchUp, JobKey, Retry
from tocsin.schemas.limits import ATTEMPTS_MAX, FACTOR_MAX, RETRY_DELAY_MS_MAX
from tocsin.schemas.records import RunStatus
from tocsin.schemas.rows import RunRow
from tocsin.streams.policies import has_due_record, is_missed, may_try_again, retry_delay_ms, sort_open_runs

MINUTE_MS = 60_000
HOUR_MS = 3_600_000
KEY = JobKey("default/a")
NO_RETRY_AFTER = -1


def delays(retry: Retry, failures: range) -> list[int]:
    return [retry_delay_ms(retry, number, "r#1", NO_RETRY_AFTER) for number in failures]


# --- how long to wait


def test_exponential_multiplies_by_the_factor_up_to_max() -> None:
    retry = Retry(backoff="exponential", base_ms=30_000, factor=4.0, max_ms=HOUR_MS, jitter=0.0)
    assert [30_000, 120_000, 480_000, 1_920_000, HOUR_MS, HOUR_MS] == delays(retry, range(1, 7))


def test_linear_adds_the_base_up_to_max() -> None:
    retry = Retry(backoff="linear", base_ms=20_000, max_ms=MINUTE_MS, jitter=0.0)
    assert [20_000, 40_000, 60_000, 60_000] == delays(retry, range(1, 5))


def test_fixed_is_the_base_each_time() -> None:
    retry = Retry(backoff="fixed", base_ms=7_000, jitter=0.0)
    assert [7_000, 7_000, 7_000] == delays(retry, range(1, 4))


def test_a_list_is_taken_as_it_stands_and_its_last_delay_holds_for_all_that_follow() -> None:
    retry = Retry(backoff="list", delays_ms=(10_000, 2 * HOUR_MS, 1_000), max_ms=HOUR_MS, jitter=0.0)
    assert [10_000, 2 * HOUR_MS, 1_000, 1_000, 1_000] == delays(retry, range(1, 6))


def test_the_delays_of_the_defaults() -> None:
    assert [30_000, 120_000, 480_000, 1_920_000] == delays(Retry(jitter=0.0), range(1, 5))


@pytest.mark.parametrize("backoff", ["exponential", "linear", "fixed", "list"])
def test_retry_after_wins_over_every_backoff_up_to_max_and_without_jitter(backoff: str) -> None:
    retry = Retry(backoff=backoff, delays_ms=(5,), max_ms=HOUR_MS, jitter=1.0)  # type: ignore[arg-type]
    assert 90_000 == retry_delay_ms(retry, 3, "r#3", 90_000)
    assert 0 == retry_delay_ms(retry, 3, "r#3", 0)
    assert HOUR_MS == retry_delay_ms(retry, 3, "r#3", 24 * HOUR_MS)


def test_jitter_is_the_same_for_the_same_run_and_attempt_and_differs_for_others() -> None:
    retry = Retry(backoff="fixed", base_ms=HOUR_MS, jitter=0.2)
    once = retry_delay_ms(retry, 1, "default/a@20260101T000000.000Z#1", NO_RETRY_AFTER)
    # Literal, so that a replay by a later version that computes another instant is noticed.
    assert 3_007_442 == once
    seeds = [f"default/a@20260101T000000.000Z#{number}" for number in range(1_000)]
    found = {retry_delay_ms(retry, 1, seed, NO_RETRY_AFTER) for seed in seeds}
    assert len(found) > 900


def test_jitter_spreads_evenly_over_its_range() -> None:
    """A thousand jobs that failed together must not come back together."""
    retry = Retry(backoff="fixed", base_ms=100_000, jitter=0.2)
    found = [retry_delay_ms(retry, 1, f"default/job-{n}#1", NO_RETRY_AFTER) for n in range(1_000)]
    tenths = [sum(low <= each < low + 4_000 for each in found) for low in range(80_000, 120_000, 4_000)]
    assert 1_000 == sum(tenths)
    assert all(50 <= count <= 150 for count in tenths), tenths


RETRIES = st.builds(
    Retry,
    backoff=st.sampled_from(["exponential", "linear", "fixed", "list"]),
    base_ms=st.integers(1, RETRY_DELAY_MS_MAX),
    factor=st.floats(1.0, FACTOR_MAX),
    max_ms=st.integers(1, RETRY_DELAY_MS_MAX),
    jitter=st.floats(0.0, 1.0),
    delays_ms=st.lists(st.integers(1, RETRY_DELAY_MS_MAX), min_size=1, max_size=5).map(tuple),
)


@given(
    RETRIES,
    st.integers(1, 10 * ATTEMPTS_MAX),
    st.text(max_size=40),
    st.one_of(st.just(-1), st.integers(0, 1 << 62)),
)
def test_every_policy_that_can_be_defined_gives_a_delay_within_its_bounds(
    retry: Retry, failures: int, seed: str, retry_after_ms: int
) -> None:
    found = retry_delay_ms(retry, failures, seed, retry_after_ms)
    assert found == retry_delay_ms(retry, failures, seed, retry_after_ms)
    if retry_after_ms >= 0:
        assert min(retry_after_ms, retry.max_ms) == found
        return
    plain = retry_delay_ms(
        Retry(
            backoff=retry.backoff,
            base_ms=retry.base_ms,
            factor=retry.factor,
            max_ms=retry.max_ms,
            delays_ms=retry.delays_ms,
            jitter=0.0,
        ),
        failures,
        seed,
        -1,
    )
    assert plain <= (retry.max_ms if retry.backoff != "list" else max(retry.delays_ms))
    assert 0 <= found
    # Cut to whole milliseconds twice: once without jitter, once with it.
    assert plain * (1 - retry.jitter) - 1 <= found <= (plain + 1) * (1 + retry.jitter)


@given(RETRIES, st.text(max_size=10))
def test_a_later_failure_never_waits_shorter_but_by_jitter_or_list(retry: Retry, seed: str) -> None:
    if retry.backoff == "list":
        return
    still = Retry(
        backoff=retry.backoff, base_ms=retry.base_ms, factor=retry.factor, max_ms=retry.max_ms, jitter=0.0
    )
    found = delays(still, range(1, ATTEMPTS_MAX + 1))
    assert sorted(found) == found


# --- whether to try again


def test_as_many_attempts_as_the_policy_says_and_no_more() -> None:
    retry = Retry(max_attempts=3)
    tried = [may_try_again(retry, run_row(KEY, attempt=n, age_from_ms=T0), T0 + 1) for n in (1, 2, 3, 4)]
    assert ["", "", "max_attempts", "max_attempts"] == tried


def test_a_redrive_counts_its_attempts_from_where_it_began() -> None:
    retry = Retry(max_attempts=3)
    tried = [
        may_try_again(retry, run_row(KEY, attempt=n, attempts_before=3, age_from_ms=T0), T0 + 1)
        for n in (4, 5, 6)
    ]
    assert ["", "", "max_attempts"] == tried


def test_an_attempt_is_made_up_to_the_age_and_not_beyond() -> None:
    retry = Retry(max_age_ms=HOUR_MS)
    run = run_row(KEY, attempt=1, age_from_ms=T0)
    assert "" == may_try_again(retry, run, T0 + HOUR_MS)
    assert "max_age" == may_try_again(retry, run, T0 + HOUR_MS + 1)


def test_later_than_the_grace_is_missed_and_up_to_it_only_late() -> None:
    catchup = CatchUp(grace_ms=30_000)
    assert [False, False, True] == [is_missed(catchup, T0 + late, T0) for late in (-1, 30_000, 30_001)]


# --- what is in the way


def sorted_runs(*runs: tuple[RunRow, bool]) -> dict[str, object]:
    found = sort_open_runs(runs)
    return {
        "supersedable": [run.seq for run in found.supersedable],
        "unanswered": [run.seq for run in found.unanswered],
        "active": [run.seq for run in found.active],
        "buffered": found.buffered,
    }


NOBODY = {"supersedable": [], "unanswered": [], "active": [], "buffered": 0}


def test_each_open_run_is_one_thing_to_an_occurrence() -> None:
    assert NOBODY == sorted_runs()
    found = sorted_runs(
        (run_row(KEY, 1, status="retrying"), True),
        (run_row(KEY, 2, status="retrying"), False),
        (run_row(KEY, 3, status="scheduled", outstanding=True), True),
        (run_row(KEY, 4, status="scheduled", outstanding=True, withdrawal="withdraw"), True),
        (run_row(KEY, 5, status="running", outstanding=True, withdrawal="cancel"), True),
        (run_row(KEY, 6, status="buffered"), True),
        (run_row(KEY, 7, status="waiting"), True),
        (run_row(KEY, 8, status="undecided"), True),
    )
    assert {"supersedable": [1], "unanswered": [4], "active": [2, 3, 5, 6, 7], "buffered": 1} == found


OPEN: tuple[RunStatus, ...] = ("scheduled", "running", "retrying", "buffered", "waiting", "undecided")


@pytest.mark.parametrize("status", OPEN)
def test_a_worker_may_hold_only_what_is_outstanding_and_not_what_waits(status: RunStatus) -> None:
    assert not has_due_record(run_row(KEY, status=status, outstanding=False))
    expected = status in ("scheduled", "running", "undecided")
    assert expected == has_due_record(run_row(KEY, status=status, outstanding=True))


def test_no_status_of_an_open_run_is_forgotten_here() -> None:
    ended = {"succeeded", "failed", "cancelled", "superseded", "skipped"}
    assert set(OPEN) == set(get_args(RunStatus)) - ended
