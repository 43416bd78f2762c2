"""Run ids: the same occurrence has the same one, two never share one, and each leads back to its job."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tocsin.streams.ids import job_key_of, occurrence_run_id, trigger_run_id

PART = st.from_regex(r"\A[A-Za-z0-9][A-Za-z0-9._-]{0,127}\Z")
KEYS = st.tuples(PART, PART).map("/".join)
INSTANTS = st.integers(0, 253_402_300_799_999)


def test_the_ids_are_as_they_are_documented() -> None:
    assert "billing/send@20260308T070000.000Z" == occurrence_run_id("billing/send", 1_772_953_200_000)
    assert "billing/send!t.order-17" == trigger_run_id("billing/send", "order-17")


@given(KEYS, INSTANTS)
def test_an_occurrence_leads_back_to_its_job(key: str, nominal_ms: int) -> None:
    assert key == job_key_of(occurrence_run_id(key, nominal_ms))


@given(KEYS, PART)
def test_a_trigger_leads_back_to_its_job(key: str, trigger_id: str) -> None:
    assert key == job_key_of(trigger_run_id(key, trigger_id))


@given(st.lists(st.tuples(KEYS, INSTANTS, PART), unique=True, min_size=2, max_size=6))
def test_different_occurrences_and_triggers_never_share_an_id(found: list[tuple[str, int, str]]) -> None:
    occurrences = {(key, nominal_ms) for key, nominal_ms, _ in found}
    triggers = {(key, trigger_id) for key, _, trigger_id in found}
    ids = {occurrence_run_id(*each) for each in occurrences} | {trigger_run_id(*each) for each in triggers}
    assert len(occurrences) + len(triggers) == len(ids)


@given(KEYS, st.lists(INSTANTS, min_size=2, max_size=6))
def test_the_ids_of_a_job_sort_as_its_occurrences_do(key: str, nominals: list[int]) -> None:
    ids = [occurrence_run_id(key, nominal_ms) for nominal_ms in nominals]
    assert [occurrence_run_id(key, nominal_ms) for nominal_ms in sorted(nominals)] == sorted(ids)


@pytest.mark.parametrize(
    "run_id, key",
    [
        ("a/b!b.range-1.20260308T070000.000Z", "a/b"),
        ("a/b!a.0123456789abcdef", "a/b"),
        ("a/b!c.0123456789abcdef", "a/b"),
        ("a/b!t.x@y", "a/b"),
        ("a/b!t.x@y/z", "a/b"),
        ("a/b@x!t.y", "a/b"),
    ],
)
def test_the_first_mark_ends_the_key(run_id: str, key: str) -> None:
    assert key == job_key_of(run_id)


@pytest.mark.parametrize(
    "text", ["", "@", "!", "a", "a/b", "a@20260308T070000.000Z", "a/b/c@x", "a/b/c!t.x", "/"]
)
def test_what_is_no_run_id_is_refused_with_what_one_looks_like(text: str) -> None:
    with pytest.raises(ValueError, match="expected namespace/id@instant"):
        job_key_of(text)
