"""Which timers a row has, and how a timer is spelled."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tocsin.schemas.job import JobKey
from tocsin.schemas.rows import DeadRow, DefinitionRow, JobRow, PendingRow, RunRow
from tocsin.streams.families import (
    DEAD,
    DEFINITIONS,
    FAMILIES,
    JOURNAL_KEY,
    PENDING,
    RUNS,
    STATE,
    UnknownFamily,
    changelog_key,
    definition_key,
    pending_key,
    run_key,
    split_changelog_key,
    split_numbered,
    split_pending,
    state_key,
)
from tocsin.streams.timers import (
    AHEAD,
    EXACT,
    RANGES,
    Kind,
    Timer,
    due_of,
    end_of,
    first_key,
    first_of,
    kind_of,
    range_of,
    timers_of,
)

JOB = JobKey("shop/nightly")
names = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,12}", fullmatch=True)
timers = st.builds(
    Timer,
    range=st.sampled_from(RANGES),
    due_ms=st.integers(-(1 << 50), 1 << 50),
    kind=st.sampled_from(Kind),
    key=st.builds(lambda a, b: f"{a}/{b}".encode(), names, names),
    disc=st.binary(max_size=12),
)


def run(**fields: object) -> RunRow:
    return RunRow(
        **{
            "run_id": "shop/nightly@x",
            "job_key": JOB,
            "seq": 7,
            "revision": 1,
            "cause": "schedule",
            "nominal_ms": 1_000,
            "due_ms": 1_500,
            "status": "scheduled",
            **fields,
        }  # type: ignore[arg-type]
    )


# --- spelling


@given(timers)
def test_a_timer_is_read_back_as_it_was_written(timer: Timer) -> None:
    assert Timer.decode(timer.encode()) == timer


@given(timers, timers)
def test_encoded_timers_sort_by_range_then_instant_then_kind(one: Timer, other: Timer) -> None:
    if (one.range, one.due_ms, one.kind) != (other.range, other.due_ms, other.kind):
        by_fields = (one.range, one.due_ms, one.kind) < (other.range, other.due_ms, other.kind)
        assert by_fields == (one.encode() < other.encode())


@given(timers, timers)
def test_two_timers_never_share_a_key(one: Timer, other: Timer) -> None:
    assert (one == other) == (one.encode() == other.encode())


@given(timers, st.integers(-(1 << 50), 1 << 50))
def test_the_first_key_of_an_instant_parts_what_is_due_before_it_from_the_rest(timer: Timer, at: int) -> None:
    assert (timer.due_ms < at) == (timer.encode() < first_key(timer.range, at))


@given(timers)
def test_range_instant_and_kind_are_read_without_decoding_the_rest(timer: Timer) -> None:
    data = timer.encode()
    assert (timer.range, timer.due_ms, timer.kind) == (range_of(data), due_of(data), kind_of(data))
    assert first_of(timer.range) <= data < end_of(timer.range)


def test_an_instant_before_1970_sorts_before_it() -> None:
    assert (
        Timer(AHEAD, -1, Kind.OCCURRENCE, b"a/b").encode() < Timer(AHEAD, 0, Kind.OCCURRENCE, b"a/b").encode()
    )


# --- jobs


@pytest.mark.parametrize(("armed", "lane"), [("ahead", AHEAD), ("continue", AHEAD), ("exact", EXACT)])
def test_an_armed_job_has_one_timer_at_its_due_instant(armed: str, lane: bytes) -> None:
    row = JobRow(armed=armed, armed_nominal_ms=900, armed_due_ms=1_000)  # type: ignore[arg-type]
    assert (Timer(lane, 1_000, Kind.OCCURRENCE, b"shop/nightly"),) == timers_of(STATE, state_key(JOB), row)  # type: ignore[arg-type]


@pytest.mark.parametrize("armed", ["none", "blocked"])
def test_a_job_that_waits_for_something_else_has_no_timer(armed: str) -> None:
    row = JobRow(armed=armed, armed_due_ms=1_000)  # type: ignore[arg-type]
    assert () == timers_of(STATE, state_key(JOB), row)


def test_a_job_paused_until_an_instant_resumes_then() -> None:
    row = JobRow(paused=True, paused_until_ms=5_000)
    assert (Timer(EXACT, 5_000, Kind.RESUME, b"shop/nightly"),) == timers_of(STATE, state_key(JOB), row)
    assert () == timers_of(STATE, state_key(JOB), JobRow(paused=True))
    assert () == timers_of(STATE, state_key(JOB), JobRow(paused=False, paused_until_ms=5_000))


def test_a_job_may_have_an_occurrence_a_resume_and_a_deletion_ahead() -> None:
    row = JobRow(armed="ahead", armed_due_ms=1, paused=True, paused_until_ms=2, delete_at_ms=3)
    assert (
        Timer(AHEAD, 1, Kind.OCCURRENCE, b"shop/nightly"),
        Timer(EXACT, 2, Kind.RESUME, b"shop/nightly"),
        Timer(EXACT, 3, Kind.DELETE, b"shop/nightly"),
    ) == timers_of(STATE, state_key(JOB), row)


# --- runs


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        (run(outstanding=True, start_deadline_ms=9_000), (EXACT, 69_000, Kind.START_DEADLINE)),
        (run(status="running", outstanding=True, start_deadline_ms=9_000, lease_until_ms=8_000), (EXACT, 8_000, Kind.LEASE)),
        (run(status="undecided"), (EXACT, 1_500, Kind.DECIDE)),
        (run(status="retrying", attempt_due_ms=2_000), (AHEAD, 2_000, Kind.RETRY)),
    ],
)  # fmt: skip
def test_a_run_has_the_one_timer_of_what_it_waits_for(row: RunRow, expected: tuple[bytes, int, Kind]) -> None:
    (timer,) = timers_of(RUNS, run_key(JOB, 7), row)
    assert expected == (timer.range, timer.due_ms, timer.kind)
    assert (JOB, 7) == (timer.job_key, timer.seq)


@pytest.mark.parametrize(
    "row",
    [
        run(status="retrying", parked=True),
        run(status="buffered"),
        run(status="waiting"),
        run(status="scheduled", outstanding=False),
        run(status="retrying", parked=True, lease_until_ms=8_000),
    ],
)
def test_a_run_that_waits_for_another_run_or_for_an_occurrence_has_no_timer(row: RunRow) -> None:
    assert () == timers_of(RUNS, run_key(JOB, 7), row)


def test_a_run_under_withdrawal_is_still_guarded_by_its_lease() -> None:
    row = run(outstanding=True, withdrawal="cancel", lease_until_ms=8_000)
    assert [Kind.LEASE] == [timer.kind for timer in timers_of(RUNS, run_key(JOB, 7), row)]


# --- the others


def test_a_trigger_id_is_forgotten_when_its_time_is_up() -> None:
    (timer,) = timers_of(PENDING, pending_key("trigger", JOB, "abc"), PendingRow(kind="trigger", until_ms=50))
    assert (EXACT, 50, Kind.PENDING) == (timer.range, timer.due_ms, timer.kind)
    assert ("trigger", JOB, "abc") == timer.pending


def test_a_dead_letter_goes_when_its_time_is_up() -> None:
    row = DeadRow(run=run(), died_ms=1, until_ms=99)
    assert (Timer(EXACT, 99, Kind.DEAD, b"shop/nightly", (7).to_bytes(8)),) == timers_of(
        DEAD, run_key(JOB, 7), row
    )


def test_no_row_has_no_timers() -> None:
    for family in FAMILIES:
        assert () == timers_of(family, state_key(JOB), None)


def test_a_definition_has_no_timers() -> None:
    row = DefinitionRow.__new__(DefinitionRow)  # it is not even looked at
    assert () == timers_of(DEFINITIONS, definition_key(JOB, 1), row)


# --- keys


def test_keys_are_taken_apart_again() -> None:
    assert (JOB, 12) == split_numbered(definition_key(JOB, 12))
    assert (JOB, 1 << 40) == split_numbered(run_key(JOB, 1 << 40))
    assert ("parked", JOB, "77") == split_pending(pending_key("parked", JOB, "77"))
    for family in FAMILIES:
        assert (family, b"some/key") == split_changelog_key(changelog_key(family, b"some/key"))


def test_runs_of_a_job_sort_by_seq_and_apart_from_a_job_whose_name_begins_alike() -> None:
    keys = [run_key(JobKey("a/b"), 2), run_key(JobKey("a/b"), 256), run_key(JobKey("a/b-c"), 1)]
    assert keys == sorted(keys)


@pytest.mark.parametrize("key", [b"", b"D", JOURNAL_KEY, b"Zsome/key"])
def test_a_changelog_key_of_no_known_family_is_refused(key: bytes) -> None:
    with pytest.raises(UnknownFamily, match="upgrade this process"):
        split_changelog_key(key)


def test_the_journal_key_is_no_familys() -> None:
    assert all(not changelog_key(family, b"x").startswith(JOURNAL_KEY) for family in FAMILIES)
