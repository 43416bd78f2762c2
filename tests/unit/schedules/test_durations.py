"""Durations as people write them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tocsin.schedules import ScheduleError, format_duration, parse_duration


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0s", 0),
        ("500ms", 500),
        ("90s", 90_000),
        ("10m", 600_000),
        ("24h", 86_400_000),
        ("1d2h3m4s500ms", 93_784_500),
        ("1d500ms", 86_400_500),
        ("007s", 7_000),
    ],
)
def test_a_duration_is_the_sum_of_its_parts(text: str, expected: int) -> None:
    assert expected == parse_duration(text)


@pytest.mark.parametrize(
    ("text", "rule", "words"),
    [
        ("", "duration-empty", "write for example 90s"),
        ("  ", "duration-empty", "write for example 90s"),
        ("90", "duration-unit", "90 has no unit: write 90s for seconds, 90m for minutes or 90ms"),
        ("1h30", "duration-format", "1h30"),
        ("-5s", "duration-sign", "negative"),
        ("1.5h", "duration-fraction", "write whole numbers, for example 1h30m"),
        ("1,5h", "duration-fraction", "whole numbers"),
        ("5 s", "duration-format", "without spaces"),
        (" 5s", "duration-format", "without spaces"),
        ("5w", "duration-unit", "'w' is no unit"),
        ("5S", "duration-unit", "lower case"),
        ("5M", "duration-unit", "lower case"),
        ("5µs", "duration-unit", "'µs' is no unit"),
        ("5min", "duration-unit", "'min' is no unit"),
        ("3m1h", "duration-order", "the largest first"),
        ("1s1s", "duration-order", "each unit once"),
        ("PT5S", "duration-format", "PT5S"),
        ("٣s", "duration-format", "is no duration"),
        ("9" * 20 + "d", "duration-range", "at most 10000 years"),
        ("9" * 5000 + "d", "duration-range", "at most 10000 years"),
        ("9" * 5000, "duration-unit", "has no unit"),
    ],
)
def test_what_is_no_duration_is_refused_with_what_to_write(text: str, rule: str, words: str) -> None:
    with pytest.raises(ScheduleError) as caught:
        parse_duration(text)
    error = caught.value
    assert ("duration", rule, text) == (error.field, error.rule, error.value)
    assert words in error.message
    assert len(error.message) < 300


@given(st.integers(0, 10_000 * 366 * 86_400_000))
def test_what_is_formatted_is_read_back(duration_ms: int) -> None:
    assert duration_ms == parse_duration(format_duration(duration_ms))


@given(st.lists(st.integers(0, 10_000), min_size=5, max_size=5))
def test_any_sum_of_parts_is_formatted_in_the_largest_units(parts: list[int]) -> None:
    text = "".join(f"{number}{unit}" for number, unit in zip(parts, ("d", "h", "m", "s", "ms"), strict=True))
    total = parts[0] * 86_400_000 + parts[1] * 3_600_000 + parts[2] * 60_000 + parts[3] * 1_000 + parts[4]
    assert total == parse_duration(text)
    formatted = format_duration(total)
    assert total == parse_duration(formatted)
    assert len(formatted) <= len(text)


def test_a_negative_number_of_milliseconds_is_a_mistake_of_the_program() -> None:
    with pytest.raises(ValueError, match="not negative"):
        format_duration(-1)
