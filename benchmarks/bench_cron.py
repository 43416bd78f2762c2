"""How long one `next` of a cron expression takes, beside croniter and cronsim in the same run.

    python benchmarks/bench_cron.py [--rounds 7]

Method: one process, one thread, warm. Each library walks a series, every answer being the next question, which is how
schedulers use it; croniter and cronsim keep their iterator and get aware datetimes of zoneinfo, as their
documentation has it, on the same time-zone data. Rounds of the three alternate, so that a busy machine slows all of
them; the figures are the minimum, the median and the maximum of the rounds, in microseconds per call, and the ratio
is that of the medians. The first answers of each library are compared too: a line with an asterisk differs.
"""

from __future__ import annotations

import argparse
import pkgutil
import platform
import statistics
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from importlib.metadata import version
from io import BytesIO
from itertools import islice
from typing import Final
from zoneinfo import ZoneInfo

from croniter import croniter
from cronsim import CronSim

from tocsin.schedules import Cron, Timetable, shared_cron, tzdata_version

SERIES: Final = (
    # expression, zone, calls in a round
    ("*/5 * * * *", "UTC", 2000),
    ("*/5 * * * *", "America/New_York", 2000),
    ("0 9 * * MON-FRI", "Europe/Berlin", 1000),
    ("30 2 * * *", "America/New_York", 1000),
    ("0 0 1 * *", "Asia/Kolkata", 300),
    ("0 0 L * *", "Europe/London", 300),
    ("15,45 8-18 1-15 * *", "Australia/Sydney", 1000),
    ("0 0 29 2 *", "UTC", 15),
)
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
START: Final = datetime(2026, 1, 1, tzinfo=UTC)
START_MS: Final = (START - EPOCH) // timedelta(milliseconds=1)
COMPARED: Final = 10


def zoneinfo_of(name: str) -> ZoneInfo:
    return ZoneInfo.from_file(BytesIO(pkgutil.get_data("tzdata", f"zoneinfo/{name}") or b""), key=name)


def walk_tocsin(expression: str, timezone: str, calls: int) -> tuple[float, list[int]]:
    cron = Cron(expression, timezone)
    ask = cron.next
    instant_ms = ask(START_MS) or 0  # what is made once per expression is made here
    found = [instant_ms // 1000]
    started = time.perf_counter()
    for _ in range(calls):
        instant_ms = ask(instant_ms) or 0
    took = time.perf_counter() - started
    found += [each // 1000 for each in islice(cron.fires(found[0] * 1000), COMPARED - 1)]
    return took, found


def walk_croniter(expression: str, timezone: str, calls: int) -> tuple[float, list[int]]:
    start = START.astimezone(zoneinfo_of(timezone))
    asked = croniter(expression, start)
    asked.get_next(datetime)
    started = time.perf_counter()
    for _ in range(calls):
        asked.get_next(datetime)
    took = time.perf_counter() - started
    again = croniter(expression, start)
    return took, [int((again.get_next(datetime) - EPOCH).total_seconds()) for _ in range(COMPARED)]


def walk_cronsim(expression: str, timezone: str, calls: int) -> tuple[float, list[int]]:
    start = START.astimezone(zoneinfo_of(timezone))
    asked = CronSim(expression, start)
    next(asked)
    started = time.perf_counter()
    for _ in range(calls):
        next(asked)
    took = time.perf_counter() - started
    return took, [
        int((each - EPOCH).total_seconds()) for each in islice(CronSim(expression, start), COMPARED)
    ]


WALKS: Final = {"tocsin": walk_tocsin, "croniter": walk_croniter, "cronsim": walk_cronsim}


def spread(times: list[float]) -> str:
    return f"{min(times):6.2f} {statistics.median(times):6.2f} {max(times):6.2f}"


def per_call_us(call: Callable[[], object], calls: int, rounds: int) -> list[float]:
    times = []
    for _ in range(rounds):
        started = time.perf_counter()
        for _ in range(calls):
            call()
        times.append((time.perf_counter() - started) / calls * 1e6)
    return times


def compare(rounds: int) -> None:
    print(
        f"{'warm next, us per call: min median max':58}{'tocsin':>20} {'croniter':>22} {'cronsim':>22}   ratios"
    )
    for expression, timezone, calls in SERIES:
        times: dict[str, list[float]] = {name: [] for name in WALKS}
        answers = {}
        for _ in range(rounds):
            for name, walk in WALKS.items():
                took, answers[name] = walk(expression, timezone, calls)
                times[name].append(took / calls * 1e6)
        ours = statistics.median(times["tocsin"])
        row = f"{expression:24}{timezone:30}"
        for name in WALKS:
            row += f"{spread(times[name]):>22}{' ' if answers[name] == answers['tocsin'] else '*'}"
        ratios = [f"{statistics.median(times[name]) / ours:.0f}x" for name in ("croniter", "cronsim")]
        print(f"{row} {' '.join(ratios)}")


def alone(rounds: int) -> None:
    """What else a processor does at each fire, without a counterpart elsewhere."""
    cron = shared_cron("0 9 * * MON-FRI", "Europe/Berlin")
    timetable = Timetable(kind="cron", crons=("0 9 * * MON-FRI",), timezone="Europe/Berlin")
    excluding = Timetable(
        kind="cron", crons=("*/5 * * * *",), timezone="Europe/Berlin", exclude_crons=("* * 24 12 *",)
    )
    every = Timetable(kind="every", every_ms=90_000)
    minutes = iter(range(10**9))
    measured: dict[str, Callable[[], object]] = {
        "the same question again (a million jobs of one expression)": lambda: timetable.next_nominal(
            START_MS
        ),
        "every 90s": lambda: every.next_nominal(START_MS),
        "with an exclusion": lambda: excluding.next_nominal(START_MS),
        "previous": lambda: cron.prev(START_MS),
        "newest 100 of an interval": lambda: timetable.newest(0, START_MS, 100),
        "an expression never seen before, and its first fire": lambda: Cron(
            f"{(minute := next(minutes)) % 60} {minute // 60 % 24} {minute // 1440 % 28 + 1} * *",
            "Europe/Berlin",
        ).next(START_MS),
    }
    print(f"\n{'tocsin alone, us per call: min median max':58}")
    for name, call in measured.items():
        print(f"{name:62}{spread(per_call_us(call, 2000, rounds))}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=7)
    rounds = parser.parse_args().rounds
    print(
        f"Python {platform.python_version()}, croniter {version('croniter')}, cronsim {version('cronsim')}, "
        f"tzdata {tzdata_version()}, {rounds} rounds"
    )
    compare(rounds)
    alone(rounds)


if __name__ == "__main__":
    main()
