"""Expressions in words, and the warnings."""

import pytest

from tocsin.schedules import Cron, Fold, Gap, ScheduleError, format_instant, parse_instant
from tocsin.schedules.explain import explain
from tocsin.schedules.grammar import MACROS

AFTER_MS = parse_instant("2026-02-01T00:00:00Z")


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("0 9 * * MON-FRI", "At 09:00, on Monday to Friday"),
        ("30 2 * * *", "At 02:30, every day"),
        ("*/15 * * * *", "Every 15 minutes"),
        ("* * * * *", "Every minute"),
        ("* * * * * *", "Every second"),
        ("*/30 * * * * *", "Every 30 seconds"),
        ("5 * * * *", "At minute 5 every hour"),
        ("0 */2 * * *", "Every 2 hours, every day"),
        ("5 1-23/2 * * *", "At minute 5 of every 2nd hour from 01 on, every day"),
        ("0 9-17 * * *", "Every hour from 09:00 to 17:00, every day"),
        ("*/10 9-17 * * 1-5", "Every 10 minutes from 09:00 to 17:50, on Monday to Friday"),
        ("* 9 * * *", "Every minute of hour 09, every day"),
        ("10-20 * * * *", "Every minute from 10 to 20"),
        ("0 0 1,15 * *", "At 00:00, on the 1st and the 15th of the month"),
        ("0 0 1 * MON", "At 00:00, on the 1st of the month, and also on Monday"),
        ("0 0 */2 * MON", "At 00:00, on every 2nd day counted from the 1st of the month if that is also on Monday"),
        ("0 0 L * *", "At 00:00, on the last day of the month"),
        ("0 0 L-2 * *", "At 00:00, on the 3rd day from the end of the month"),
        ("0 0 LW,15W * *", "At 00:00, on the weekday nearest to the 15th and the last weekday of the month"),
        ("0 0 L-2W * *", "At 00:00, on the weekday nearest to the 3rd day from the end of the month"),
        ("0 0 * * FRI#2,MONL", "At 00:00, on the second Friday of the month and the last Monday of the month"),
        ("0 12 * JAN-MAR,DEC 6,0", "At 12:00, on Saturday and Sunday, in January to March and December"),
        ("0 0 9 * * *", "At 09:00:00, every day"),
        ("@yearly", "At 00:00, on the 1st of the month, in January"),
    ],
)  # fmt: skip
def test_an_expression_is_read_out_in_words(expression: str, expected: str) -> None:
    assert f"{expected} (UTC)" == explain(expression, after_ms=AFTER_MS).reading


def test_every_macro_has_words() -> None:
    for macro in MACROS:
        assert explain(macro, after_ms=AFTER_MS).reading.endswith(" (UTC)")


def test_the_next_fires_come_with_it() -> None:
    explanation = explain(
        "30 2 * * *", "America/New_York", after_ms=parse_instant("2026-03-07T12:00Z"), count=2
    )
    assert (parse_instant("2026-03-08T07:00Z"), parse_instant("2026-03-09T06:30Z")) == explanation.fires


def messages(expression: str, timezone: str = "UTC", gap: Gap = "at_end", fold: Fold = "first") -> list[str]:
    explanation = explain(expression, timezone, after_ms=AFTER_MS, gap=gap, fold=fold)
    return [warning.message for warning in explanation.warnings]


@pytest.mark.parametrize(
    "expression",
    ["0 9 * * *", "*/5 * * * *", "0 */6 * * *", "0 0 L * *", "0 0 28 * *", "0 0 1-31 * *", "0 0 31 1,3,5 *",
     "@hourly", "0 0 1 */3 *", "0 0 * * */7", "10-50/7 * * * *", "0 0 1 */1 *"],
)  # fmt: skip
def test_what_nobody_is_surprised_by_has_no_warning(expression: str) -> None:
    assert [] == messages(expression)


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ("*/45 * * * *", "*/45 in the minute field is uneven: 45 does not divide 60, so 15 minutes lie"),
        ("0 */5 * * *", "*/5 in the hour field is uneven: 5 does not divide 24, so 4 hours lie"),
        ("0 12 * * */2", "so 1 day lies between the last of a week and the first of the next"),
        ("0 0 1 */5 *", "so 2 months lie between the last of a year"),
        ("0 0 */10 * *", "starts again in every month"),
        ("0 0 30 * *", "There is no 30th in February"),
        ("0 0 29 2 *", "There is no 29th in February, except in leap years"),
        ("0 0 31W * *", "There is no 31st in February, April, June, September and November: nothing fires for it. LW"),
        ("0 0 13 * FRI", "it fires on days that match either of them"),
        ("0 0 */2 * FRI", "it fires only on days that match both"),
        ("0 0 31 4 *", "It never fires: no year has such a day."),
    ],
)  # fmt: skip
def test_what_people_often_do_not_mean_has_a_warning(expression: str, words: str) -> None:
    assert any(words in message for message in messages(expression))


NEW_YORK = "On 2026-03-08 the clocks of America/New_York go forward and 02:30 does not exist: "


@pytest.mark.parametrize(
    ("gap", "words"),
    [
        ("at_end", "it fires once, when the gap ends, at 2026-03-08T07:00:00.000Z."),
        ("shift", "it fires 1 h later by the clock."),
        ("skip", "nothing fires for it."),
    ],
)
def test_a_change_that_skips_a_time_is_announced_with_what_its_policy_does(gap: Gap, words: str) -> None:
    assert NEW_YORK + words == messages("30 2 * * *", "America/New_York", gap=gap)[0]


@pytest.mark.parametrize(
    ("fold", "words"),
    [
        ("first", "it fires the first time only."),
        ("second", "it fires the second time only."),
        ("both", "it fires both times."),
    ],
)
def test_a_change_that_repeats_a_time_is_announced_with_what_its_policy_does(fold: Fold, words: str) -> None:
    start = "On 2026-04-05 the clocks of Australia/Lord_Howe go back and 01:45 comes twice: "
    assert start + words == messages("45 1 * * *", "Australia/Lord_Howe", fold=fold)[0]


def test_a_starred_expression_is_warned_of_only_where_its_hours_are_chosen() -> None:
    assert [] == messages("*/15 * * * *", "America/New_York")
    assert NEW_YORK + "nothing fires for it." == messages("*/30 2 * * *", "America/New_York")[0].replace(
        "02:00 and 02:30 do not exist", "02:30 does not exist"
    )
    assert "it fires both times" in messages("*/30 1 * * *", "America/New_York")[0]
    assert "it fires both times" in messages("*/30 * * * *", "Australia/Lord_Howe")[0]  # half an hour


def test_a_change_is_announced_only_if_it_touches_the_expression() -> None:
    assert [] == messages("30 4 * * *", "America/New_York")
    assert [] == messages("30 2 * * MON-SAT", "America/New_York")
    assert [] == messages("30 2 * * *", "Asia/Tokyo")
    assert 2 == len(messages("30 2 * * SUN", "America/New_York"))  # two years ahead


def test_what_a_zone_never_shows_is_said_to_never_fire() -> None:
    found = messages("*/30 2 * 3 0#2", "America/New_York")
    assert "It does not fire within the next 60 years." == found[0]
    with pytest.raises(ScheduleError) as caught:
        Cron("*/30 2 * 3 0#2", "America/New_York").require_fires(AFTER_MS)
    assert "cron-never" == caught.value.rule


def test_the_announced_end_of_the_gap_is_when_it_fires() -> None:
    for name in ("Africa/Cairo", "America/Santiago", "Europe/Berlin", "Asia/Beirut", "America/Nuuk"):
        for hour in range(24):
            cron = Cron(f"30 {hour} * * *", name)
            for message in messages(cron.expression, name):
                if "when the gap ends" in message:
                    end_ms = parse_instant(message.rpartition(" ")[2].rstrip("."))
                    assert end_ms == cron.next(end_ms - 1), format_instant(end_ms)
