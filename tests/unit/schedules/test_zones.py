"""Zones against zoneinfo, which reads the same files with other code."""

from datetime import UTC, timedelta
from io import BytesIO
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.schedules.oracle import EPOCH, NAIVE_EPOCH, offset_at, zoneinfo_of
from tests.unit.schedules.tzif import tzif
from tocsin.schedules import (
    ScheduleError,
    Zone,
    parse_instant,
    resolve_local,
    tzdata_version,
    zone,
    zone_names,
)

NAMES = sorted(zone_names())
EXAMPLES = settings().max_examples  # of the profile in force


def test_every_zone_changes_when_zoneinfo_changes_and_at_no_other_time() -> None:
    """At each change, a second before and a second after; and at eight instants between each two changes."""
    for name in NAMES:
        place, other = zone(name), zoneinfo_of(name)
        changes = [each for each in place.near.transitions if each > -62_000_000_000]
        assert sorted(set(changes)) == changes
        previous = changes[0] - 1_000_000 if changes else 0
        for change in changes:
            for instant in (
                change - 1,
                change,
                *range(previous + 1, change, max(1, (change - previous) // 3)),
            ):
                assert offset_at(other, instant) == place.offset_at(instant), (name, instant)
            previous = change


@given(st.sampled_from(NAMES), st.integers(-62_000_000_000, 253_000_000_000))
def test_any_zone_has_the_offset_that_zoneinfo_has_at_any_instant_of_ten_thousand_years(
    name: str, instant: int
) -> None:
    place = zone(name)
    assert offset_at(zoneinfo_of(name), instant) == place.offset_at(instant)
    start, end, offset = place.stretch_at(instant)
    assert start <= instant < end
    if start > -62_000_000_000:
        assert offset_at(zoneinfo_of(name), start) == offset
    if start > -62_000_000_000 + 1:
        assert offset_at(zoneinfo_of(name), start - 1) != offset
    if end < 253_000_000_000:
        assert offset_at(zoneinfo_of(name), end) != offset
        assert offset_at(zoneinfo_of(name), end - 1) == offset


@given(st.sampled_from(NAMES), st.data())
@settings(max_examples=EXAMPLES * 3)
def test_a_local_reading_is_the_first_instant_that_shows_it_or_the_end_of_its_gap(
    name: str, data: st.DataObject
) -> None:
    place, other = zone(name), zoneinfo_of(name)
    changes = [each for each in place.far.transitions if each > -61_000_000_000] or [0]
    near = data.draw(st.sampled_from(changes)) + data.draw(st.integers(-100_000, 100_000))
    instant = data.draw(st.one_of(st.just(near), st.integers(-61_000_000_000, 252_000_000_000)))
    reading = instant + place.offset_at(instant)
    found, skipped = place.resolve(reading)
    assert not skipped
    assert found <= instant
    assert offset_at(other, found) == reading - found
    naive = NAIVE_EPOCH + timedelta(seconds=reading)
    assert naive.replace(tzinfo=other, fold=0).astimezone(UTC) == EPOCH + timedelta(seconds=found)


@pytest.mark.parametrize(
    ("text", "name", "expected"),
    [
        ("2026-12-01T09:00:00", "Europe/Berlin", "2026-12-01T08:00:00Z"),
        ("2026-12-01", "Europe/Berlin", "2026-11-30T23:00:00Z"),
        ("2026-12-01 09:00", "Asia/Kathmandu", "2026-12-01T03:15:00Z"),
        ("2026-03-29T02:30:00", "Europe/Berlin", "2026-03-29T01:00:00Z"),
        ("2026-03-29T02:30:00.250", "Europe/Berlin", "2026-03-29T01:00:00Z"),
        ("2026-03-29T03:00:00", "Europe/Berlin", "2026-03-29T01:00:00Z"),
        ("2026-10-25T02:30:00.250", "Europe/Berlin", "2026-10-25T00:30:00.250Z"),
        ("2011-12-30T12:00:00", "Pacific/Apia", "2011-12-30T10:00:00Z"),
        ("2026-12-01T09:00:00-05:00", "Europe/Berlin", "2026-12-01T14:00:00Z"),
        ("9999-06-01T12:00:00", "America/New_York", "9999-06-01T16:00:00Z"),
    ],
)
def test_local_time_is_resolved_in_its_zone(text: str, name: str, expected: str) -> None:
    assert parse_instant(expected) == resolve_local(text, name)


# -- the rule in the footer


def days(first_month: int, last_month: int) -> st.SearchStrategy[str]:
    """Not the form n: Python 3.11's zoneinfo counts it from 1, POSIX from 0. The table below has it instead."""
    return st.one_of(
        st.builds(
            "M{}.{}.{}".format, st.integers(first_month, last_month), st.integers(1, 5), st.integers(0, 6)
        ),
        st.builds("J{}".format, st.integers(first_month * 31, last_month * 31)),
    )


TIMES = st.one_of(
    st.just(""),
    st.builds("/{}".format, st.integers(0, 24)),
    st.builds("/{}:{:02d}:{:02d}".format, st.integers(-167, 167), st.integers(0, 59), st.integers(0, 59)),
)


@given(
    st.builds("{}:{:02d}".format, st.integers(-14, 12), st.integers(0, 59)),
    st.one_of(st.just(""), st.builds("{}".format, st.integers(-15, 13))),
    st.permutations((days(2, 5), days(8, 11))).flatmap(lambda halves: st.tuples(*halves)),
    st.tuples(TIMES, TIMES),
    st.integers(0, 100_000),
)
@settings(max_examples=EXAMPLES * 2)
def test_any_rule_of_posix_is_followed_as_zoneinfo_follows_it(
    standard: str, daylight: str, on: tuple[str, str], at: tuple[str, str], pick: int
) -> None:
    """The two changes half a year apart, north or south: where they meet, zoneinfo looks at one year alone."""
    footer = f"<AAA>{standard}<BBB>{daylight},{on[0]}{at[0]},{on[1]}{at[1]}"
    data = tzif(0, [(0, 60)], footer)
    place, other = Zone.from_tzif("Test/Rule", data), ZoneInfo.from_file(BytesIO(data))
    changes = place.near.transitions[2:]  # the recorded one, which is made up, and the first of the rule
    start = pick % max(1, len(changes))  # none if the offsets are equal
    for change in changes[start : start + 3]:
        for instant in (change - 1, change, change + 7_000_000):
            assert offset_at(other, instant) == place.offset_at(instant), (footer, instant)


@pytest.mark.parametrize(
    ("footer", "instant", "offset"),
    [
        ("EST5EDT,0/0,J365/25", "2030-01-01T12:00:00Z", -14_400),  # daylight time all year
        ("EST5EDT,0/0,J365/25", "2030-07-01T12:00:00Z", -14_400),
        ("EST5EDT,0/0,J365/25", "2031-01-01T04:30:00Z", -14_400),
        ("IST-1GMT0,M10.5.0,M3.5.0/1", "2030-07-01T12:00:00Z", 3_600),  # Dublin: "daylight" time in winter
        ("IST-1GMT0,M10.5.0,M3.5.0/1", "2030-12-31T23:59:59Z", 0),
        (
            "<-02>2<-01>,M3.5.0/-1,M10.5.0/0",
            "2030-03-31T00:59:59Z",
            -7_200,
        ),  # Nuuk: a change on the day before
        ("<-02>2<-01>,M3.5.0/-1,M10.5.0/0", "2030-03-31T01:00:00Z", -3_600),
        ("EET-2EEST,M3.4.4/50,M10.4.4/50", "2030-03-29T23:59:59Z", 7_200),  # Gaza: two days after a Thursday
        ("EET-2EEST,M3.4.4/50,M10.4.4/50", "2030-03-30T00:00:00Z", 10_800),
        ("AAA0BBB,J60/0,J300/0", "2032-02-29T23:59:59Z", 0),  # J60 is 1 March, in leap years too
        ("AAA0BBB,J60/0,J300/0", "2032-03-01T00:00:00Z", 3_600),
        ("AAA0BBB,J59/0,J300/0", "2032-02-27T23:59:59Z", 0),  # J59 is 28 February
        ("AAA0BBB,J59/0,J300/0", "2032-02-28T00:00:00Z", 3_600),
        ("AAA0BBB,59/0,299/0", "2032-02-29T00:00:00Z", 3_600),  # 59 is the 60th day
        ("AAA-5:43", "2030-01-01T00:00:00Z", 20_580),
        ("", "2030-01-01T00:00:00Z", 0),
    ],
)
def test_a_rule_holds_to_the_second(footer: str, instant: str, offset: int) -> None:
    data = tzif(20_580 if footer == "AAA-5:43" else 0, [], footer)
    assert offset == Zone.from_tzif("Test/Rule", data).offset_at(parse_instant(instant) // 1000)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"not a zone file" * 10,
        tzif(0, [], "UTC0")[:50],
        tzif(0, [], "UTC0")[:-2],
        tzif(0, [], "nonsense"),
        tzif(0, [], "AAA-3"),  # contradicts the offset of the file, 0
        b"TZif" + bytes(40),  # version 1
    ],
)
def test_a_broken_zone_file_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"TZif|TZ string|footer"):
        Zone.from_tzif("Test/Broken", data)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("europe/berlin", "did you mean Europe/Berlin?"),
        ("Europe/Berln", "did you mean Europe/Berlin"),
        ("", "the timezone is empty"),
        ("../../etc/passwd", "is not a zone"),
        ("Factory", "is not a zone"),
        ("PST", "is not a zone"),
    ],
)
def test_an_unknown_zone_is_refused_with_the_nearest_name(name: str, words: str) -> None:
    with pytest.raises(ScheduleError) as caught:
        zone(name)
    assert ("timezone", "timezone-unknown", name) == (
        caught.value.field,
        caught.value.rule,
        caught.value.value,
    )
    assert words in caught.value.message


def test_the_version_is_that_of_the_package_in_the_words_of_iana() -> None:
    import tzdata

    assert tzdata.IANA_VERSION == tzdata_version()
    assert NAMES
    assert {"UTC", "Europe/Berlin", "US/Eastern", "GMT+0"} <= zone_names()
