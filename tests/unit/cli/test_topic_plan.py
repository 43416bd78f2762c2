"""`tocsin topics plan`: what it reckons with is what the codec makes, and what was counted on a broker."""

import json

import pytest

from tests.unit.cli.conftest import tocsin
from tocsin.cli.topic_plan import TopicPlan, plan_topics, record_sizes

DAY_S = 86_400


def _planned(
    rate: float, jobs: int = 0, target_bytes: int = 200, partitions: int = 12
) -> dict[str, TopicPlan]:
    plan = plan_topics(rate=rate, jobs=jobs, target_bytes=target_bytes, partitions=partitions)
    return {each.topic.removeprefix("tocsin."): each for each in plan.topics}


def test_a_run_makes_one_due_record_one_report_two_events_and_three_rows() -> None:
    # Counted on a broker at 40 and at 400 runs a second: 1.0, 1.0, 2.0, and 3.0 rows without the journal's.
    planned = _planned(1_000.0)
    journal = planned["journal"].records_per_s
    assert (1_000, 1_000, 2_000, 3_000) == (
        planned["due.default"].records_per_s,
        planned["outcomes"].records_per_s,
        planned["runs"].records_per_s,
        planned["state"].records_per_s - journal,
    )


def test_a_record_weighs_what_was_measured() -> None:
    # On a broker, with a target of 46 bytes and keys of 18 characters instead of 28 (in the run id too): a due run 210
    # bytes, a report 164, an event 182, a job's row 176, a run's row 186.
    sizes = record_sizes(46)
    measured = {"due": 210, "report": 164, "succeeded": 182, "job row": 176, "run row": 186}
    for kind, size in measured.items():
        assert size <= sizes[kind] <= size + 60, kind


def test_a_larger_target_weighs_in_the_due_run_and_in_the_definition_alone() -> None:
    small, large = record_sizes(100), record_sizes(1_100)
    # A length takes a byte more.
    grown = {kind: large[kind] - small[kind] for kind in small if large[kind] != small[kind]}
    assert {"definition", "definition row", "due"} == grown.keys()
    assert all(1_000 <= bytes_ <= 1_004 for bytes_ in grown.values())


def test_disk_is_that_of_the_whole_retention_and_grows_with_the_rate() -> None:
    slow, fast = _planned(100.0), _planned(1_000.0)
    for topic in ("due.default", "outcomes", "runs"):
        assert slow[topic].disk_bytes < fast[topic].disk_bytes
    for topic, days in (("due.default", 7), ("outcomes", 7), ("journal", 7)):
        assert fast[topic].disk_bytes >= fast[topic].bytes_per_s * days * DAY_S
    # Of a run that is older than a week only the last event is left.
    assert fast["runs"].disk_bytes < fast["runs"].bytes_per_s * 30 * DAY_S


def test_jobs_weigh_in_the_compacted_topics_alone() -> None:
    few, many = _planned(10.0, jobs=0), _planned(10.0, jobs=1_000_000)
    grown = {topic for topic in few if few[topic].disk_bytes != many[topic].disk_bytes}
    assert {"jobs", "state"} == grown
    assert many["jobs"].disk_bytes >= 1_000_000 * record_sizes(200)["definition"]


def test_nothing_but_journal_rows_is_written_when_nothing_runs() -> None:
    planned = _planned(0.001)
    assert 12 * 0.2 == planned["journal"].records_per_s
    assert planned["due.default"].records_per_s == 0.001


def test_the_table_names_the_basis_and_json_the_bytes_of_all_copies() -> None:
    shown = tocsin("topics", "plan", "--rate", "50", "--jobs", "10000", COLUMNS="120")
    assert 0 == shown.code
    assert "tocsin.due.default" in shown.out
    assert "Basis: 50 runs a second of 10,000 http jobs" in shown.out
    one = tocsin("topics", "plan", "--rate", "50", "--replication", "1", "--json").json
    three = tocsin("topics", "plan", "--rate", "50", "--replication", "3", "--json").json
    for of_one, of_three in zip(one["topics"], three["topics"], strict=True):
        assert of_three["disk_bytes"] == pytest.approx(3 * of_one["disk_bytes"], abs=3)
    assert json.dumps(one["basis"]) == json.dumps(three["basis"])


def test_every_number_that_cannot_be_is_named_at_once() -> None:
    refused = tocsin("topics", "plan", "--rate", "0", "--jobs", "-1", "--partitions", "0")
    assert 2 == refused.code
    assert ["--rate", "--jobs", "--partitions"] == [line.split()[0] for line in refused.err.splitlines()]


def test_a_command_on_a_kafka_says_which_option_is_missing_or_wrong() -> None:
    missing = tocsin("topics", "verify")
    assert 2 == missing.code
    assert "--kafka (or TOCSIN_KAFKA) is missing" in missing.err
    wrong = tocsin("topics", "create", "--kafka", "nonsense", "--partitions", "0", "--replication", "10")
    assert 2 == wrong.code
    assert ["--partitions", "--kafka:", "--replication"] == [
        line.split()[0] for line in wrong.err.splitlines()
    ]
