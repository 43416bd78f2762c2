"""Instants as text, against the standard library's reading of the same texts."""

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.schedules.oracle import EPOCH, NAIVE_EPOCH
from tocsin.schedules import (
    INSTANT_MAX_MS,
    INSTANT_MIN_MS,
    ScheduleError,
    format_compact,
    format_instant,
    parse_compact,
    parse_instant,
    resolve_local,
)

INSTANTS = st.integers(INSTANT_MIN_MS, INSTANT_MAX_MS)


@pytest.mark.parametrize(
    ("instant_ms", "text", "compact"),
    [
        (0, "1970-01-01T00:00:00.000Z", "19700101T000000.000Z"),
        (-1, "1969-12-31T23:59:59.999Z", "19691231T235959.999Z"),
        (1_773_043_200_000, "2026-03-09T08:00:00.000Z", "20260309T080000.000Z"),
        (INSTANT_MIN_MS, "0001-01-01T00:00:00.000Z", "00010101T000000.000Z"),
        (INSTANT_MAX_MS, "9999-12-31T23:59:59.999Z", "99991231T235959.999Z"),
    ],
)
def test_an_instant_has_one_text_of_each_form(instant_ms: int, text: str, compact: str) -> None:
    assert text == format_instant(instant_ms)
    assert compact == format_compact(instant_ms)
    assert instant_ms == parse_instant(text) == parse_compact(compact)


@given(INSTANTS)
def test_what_is_formatted_is_read_back_and_is_what_datetime_says(instant_ms: int) -> None:
    assert instant_ms == parse_instant(format_instant(instant_ms))
    assert instant_ms == parse_compact(format_compact(instant_ms))
    moment = EPOCH + timedelta(milliseconds=instant_ms)
    assert moment.isoformat(timespec="milliseconds").replace("+00:00", "Z") == format_instant(instant_ms)


@given(INSTANTS, INSTANTS)
def test_compact_texts_sort_as_their_instants(one: int, other: int) -> None:
    assert (one < other) == (format_compact(one) < format_compact(other))


@given(
    st.datetimes(NAIVE_EPOCH.replace(year=2), NAIVE_EPOCH.replace(year=9998)),
    st.integers(-23 * 60 - 59, 23 * 60 + 59),
    st.sampled_from(("auto", "minutes", "seconds", "milliseconds", "microseconds")),
    st.sampled_from(["T", "t", " "]),
)
def test_any_offset_and_precision_is_read_as_datetime_reads_it(
    naive: datetime, offset_minutes: int, timespec: str, separator: str
) -> None:
    moment = naive.replace(tzinfo=timezone(timedelta(minutes=offset_minutes)))
    text = moment.isoformat(sep=separator, timespec=timespec)
    expected = datetime.fromisoformat(moment.isoformat(timespec=timespec))
    assert (expected - EPOCH) // timedelta(milliseconds=1) == parse_instant(text)
    if offset_minutes == 0:
        assert parse_instant(text) == parse_instant(text.replace("+00:00", "z"))
    assert parse_instant(text) == parse_instant(text[:-3] + text[-2:])  # +0100


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("", "instant-format"),
        ("now", "instant-format"),
        ("1773043200", "instant-format"),
        ("2026-3-9T08:00:00Z", "instant-format"),
        ("2026-03-09T08:00:00 Z", "instant-format"),
        ("2026-03-09T08:00:00Z\n", "instant-format"),
        ("2026-03-09x08:00:00Z", "instant-format"),
        ("٢٠٢٦-03-09T08:00:00Z", "instant-format"),
        ("2026-W10-1T08:00:00Z", "instant-format"),
        ("2026-03-09T08Z", "instant-format"),
        ("2026-03-09T08:00:00", "instant-offset"),
        ("2026-03-09", "instant-offset"),
        ("2026-02-30T08:00:00Z", "instant-range"),
        ("0000-01-01T08:00:00Z", "instant-range"),
        ("2026-03-09T24:00:00Z", "instant-range"),
        ("2026-03-09T08:60:00Z", "instant-range"),
        ("2026-12-31T23:59:60Z", "instant-range"),
        ("2026-03-09T08:00:00+24:00", "instant-range"),
        ("2026-03-09T08:00:00+01:60", "instant-range"),
        ("0001-01-01T00:00:00+01:00", "instant-range"),
        ("9999-12-31T23:59:59-00:01", "instant-range"),
    ],
)
def test_what_is_no_instant_is_refused(text: str, rule: str) -> None:
    with pytest.raises(ScheduleError) as caught:
        parse_instant(text)
    assert ("instant", rule, text) == (caught.value.field, caught.value.rule, caught.value.value)


@pytest.mark.parametrize(
    "text",
    [
        "20260309T080000Z",
        "20260309T080000.000+00:00",
        "20260309T080000.0000Z",
        "20260309t080000.000z",
        "20260230T080000.000Z",
        "20260309T250000.000Z",
        "2026-03-09T08:00:00.000Z",
    ],
)
def test_a_run_id_has_one_spelling_of_its_instant(text: str) -> None:
    with pytest.raises(ScheduleError):
        parse_compact(text)


def test_what_lies_below_a_millisecond_is_dropped() -> None:
    assert parse_instant("2026-03-09T08:00:00.999999999Z") == parse_instant("2026-03-09T08:00:00.999Z")
    assert parse_instant("1969-12-31T23:59:59.9999Z") == -1
    assert parse_instant("2026-03-09T08:00:00,5Z") == parse_instant("2026-03-09T08:00:00.500Z")


def test_a_message_does_not_repeat_a_whole_document() -> None:
    for text in ("x" * 100_000, "2026-13-01T00:00:00" + "0" * 100_000):
        with pytest.raises(ScheduleError) as caught:
            parse_instant(text)
        assert len(caught.value.message) < 300


def test_local_time_at_the_ends_of_the_calendar_is_refused_not_wrapped() -> None:
    with pytest.raises(ScheduleError) as caught:
        resolve_local("9999-12-31T23:00:00", "America/New_York")
    assert caught.value.rule == "instant-range"
    with pytest.raises(ScheduleError) as caught:
        resolve_local("0001-01-01T00:00:00", "Asia/Tokyo")
    assert caught.value.rule == "instant-range"
    assert resolve_local("2026-01-01T00:00:00", "UTC") == (
        datetime(2026, 1, 1, tzinfo=UTC) - EPOCH
    ) // timedelta(milliseconds=1)


def test_an_error_survives_being_sent_to_another_process() -> None:
    import pickle

    with pytest.raises(ScheduleError) as caught:
        parse_instant("now")
    copied = pickle.loads(pickle.dumps(caught.value))
    assert vars(caught.value) == vars(copied)
    assert str(caught.value) == str(copied)
