"""Processes with different time-zone data, or schema levels, do not work beside each other."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.streams.crowd import Crowd, crowd_in
from tests.unit.streams.driver import NAMES, T0, job
from tocsin.schedules.zones import tzdata_version
from tocsin.schemas import codec
from tocsin.schemas.job import Overlap, Schedule
from tocsin.schemas.records import Cluster, Journal
from tocsin.streams.bootstrap import bootstrap
from tocsin.streams.configuration import NewerSchemaLevel, OtherTimeZoneData
from tocsin.streams.store import StoreEnvironment

EVERY_SECOND = Schedule(every_ms=1_000, anchor_ms=T0)
ALLOW = Overlap(mode="allow")
PARTITIONS = 2
ANOTHER = "2019a"


@pytest.fixture
def crowd(place: Path, environment: StoreEnvironment) -> Iterator[Crowd]:
    with crowd_in(place, environment, partitions=PARTITIONS) as made:
        yield made


def change(crowd: Crowd, **fields: object) -> None:
    """Write the cluster record anew."""
    (*_, cluster) = crowd.values(NAMES.config, Cluster)
    changed = replace(cluster, **fields)  # type: ignore[arg-type]
    crowd.append(NAMES.config, b"cluster/main", codec.encode(changed), partition=0)


def start_anew(crowd: Crowd) -> None:
    bootstrap(crowd.log, NAMES, partitions=PARTITIONS, queue_partitions=PARTITIONS)


def test_one_with_other_data_is_refused_while_others_work_and_changes_nothing(crowd: Crowd) -> None:
    change(crowd, tzdata=ANOTHER)
    crowd.enter("s0", tzdata=ANOTHER)
    crowd.settle()
    before = len(crowd.values(NAMES.config, Cluster))
    with pytest.raises(OtherTimeZoneData) as refused:
        start_anew(crowd)
    assert ANOTHER in str(refused.value)
    assert tzdata_version() in str(refused.value)
    assert "stop all stream processors" in str(refused.value)
    assert before == len(crowd.values(NAMES.config, Cluster))
    with pytest.raises(OtherTimeZoneData):
        crowd.enter("s1")
    crowd.run(1_000)
    assert {"s0": {0, 1}} == crowd.owners()


def test_the_first_one_that_starts_when_nobody_works_brings_its_data_in(crowd: Crowd) -> None:
    change(crowd, tzdata=ANOTHER)
    crowd.enter("s0", tzdata=ANOTHER)
    crowd.settle()
    crowd.leave("s0")
    start_anew(crowd)
    crowd.enter("s1")
    crowd.settle()
    assert tzdata_version() == crowd.values(NAMES.config, Cluster)[-1].tzdata


def test_one_that_reads_of_other_data_commits_what_it_did_by_its_own_and_stops(crowd: Crowd) -> None:
    topology = crowd.enter("s0")
    crowd.settle()
    crowd.define(job(EVERY_SECOND, overlap=ALLOW))
    crowd.run(2_000)
    crowd.trigger("one")
    crowd.step(5)  # folded, and not committed
    change(crowd, tzdata=ANOTHER)
    with pytest.raises(OtherTimeZoneData):
        topology.run()
    assert f"the processors of this log compute schedules with time-zone data {ANOTHER}" in topology.failed
    assert all(journal.tzdata in ("", tzdata_version()) for journal in crowd.journals())
    assert "default/a!t.one" in crowd.dispatched()
    del crowd.living["s0"]
    crowd.enter("s1", tzdata=ANOTHER)
    crowd.settle()
    crowd.run(1_000)
    assert 1 == crowd.epoch("s0")  # it has let go, and nobody had to fence it
    for number in range(PARTITIONS):
        newest = crowd.log.records(NAMES.journal, number)[
            -2
        ].record  # the last one is the transaction's marker
        row = codec.decode(newest.value or b"")
        assert isinstance(row, Journal)
        assert ANOTHER == row.tzdata
    found = crowd.dispatched()
    assert len(found) == len(set(found))


def test_one_that_reads_of_a_newer_schema_level_stops_before_it_writes_at_its_own(crowd: Crowd) -> None:
    topology = crowd.enter("s0")
    crowd.settle()
    change(crowd, schema_level=codec.SCHEMA_LEVEL + 1)
    with pytest.raises(NewerSchemaLevel, match="upgrade it"):
        topology.run()
    assert "upgrade it" in topology.failed
    with pytest.raises(NewerSchemaLevel):
        crowd.enter("s1")


def test_one_that_reads_a_cluster_record_it_does_not_know_stops(crowd: Crowd) -> None:
    topology = crowd.enter("s0")
    crowd.settle()
    crowd.append(NAMES.config, b"cluster/main", b"\xc3\x01newer..!...", partition=0)
    with pytest.raises(NewerSchemaLevel, match="upgrade this process"):
        topology.run()
    del crowd.living["s0"]
