"""A store whose files are damaged while nobody looks is rebuilt from the log, whenever that is noticed."""

import logging
from pathlib import Path

import pytest

from tests.unit.streams.driver import job
from tests.unit.streams.process import Process
from tocsin.schemas.job import JobKey, Schedule
from tocsin.streams.store import StoreEnvironment

JOBS = 3_000


def damage(directory: Path) -> int:
    """Overwrite the middle of every larger file of the store; returns how many there were."""
    damaged = 0
    for file in directory.glob("*.sst"):
        size = file.stat().st_size
        if size > 30_000:
            with file.open("r+b") as opened:
                opened.seek(size // 2)
                opened.write(b"\xde\xad" * 4_000)
            damaged += 1
    return damaged


def test_damage_that_shows_only_when_a_row_is_read_costs_nothing_but_a_restore(
    tmp_path: Path, environment: StoreEnvironment, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    process = Process(tmp_path, environment)
    process.start()
    for number in range(JOBS):
        process.define(
            job(Schedule(every_ms=3_600_000), id=f"j{number}", description=f"{number * 7919 % 99_991}")
        )
    process.run(3_000)
    (partition,) = process.topology.partitions.values()
    partition.store.database.flush(wait=True)
    directory = partition.store.path
    process.stop()
    assert damage(directory) > 0

    process.open()
    for number in range(JOBS):  # every row is read, so the damaged ones are, too
        process.define(job(Schedule(every_ms=1_800_000), id=f"j{number}"))
    process.run(5_000)
    (partition,) = process.topology.partitions.values()
    assert partition.rebuilds == 1
    assert any("is rebuilt from the log" in record.message for record in caplog.records)
    reader = partition.store.reader()
    rows = {key: row.revision for key, row in reader.jobs_from()}
    assert rows == {JobKey(f"default/j{number}"): 2 for number in range(JOBS)}
    assert partition.store.verify() == []
    process.give_up()
