"""A log that is full, or cannot be reached for a while: nothing is lost, nothing done twice, and no busy loop."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import cast

import pytest

from tests.unit.streams.driver import NAMES, T0, job
from tests.unit.streams.process import Process, Sleeper, process_in
from tocsin.log.port import (
    CommitReceipt,
    EventLog,
    GroupConsumer,
    GroupMetadata,
    LogError,
    LogFull,
    LogUnavailable,
    OffsetCommit,
    Record,
    TopicPartition,
    TransactionAborted,
    TransactionalProducer,
)
from tocsin.schemas.job import Overlap, Schedule
from tocsin.streams.rocks import Database
from tocsin.streams.store import StoreEnvironment, StoreFull
from tocsin.streams.transaction import UNAVAILABLE_PAUSE_MAX_S, UNAVAILABLE_PAUSE_S
from tocsin.streams.view import View

HOURLY = Schedule(every_ms=3_600_000)
ALLOW = Overlap(mode="allow")


class Troubled:
    """EventLog whose transactional producers fail with `commit` or `call`, as long as it is set."""

    def __init__(self, log: EventLog) -> None:
        self._log = log
        self.full: LogError | None = None
        self.away = False
        self.tried_at_ms: list[int] = []
        self.now_ms: Callable[[], int] = lambda: 0

    def __getattr__(self, name: str) -> object:
        return getattr(self._log, name)

    def transactional_producer(self, transactional_id: str) -> TransactionalProducer:
        return cast(
            TransactionalProducer,
            TroubledProducer(self._log.transactional_producer(transactional_id), self),
        )


class TroubledProducer:
    def __init__(self, inner: TransactionalProducer, log: Troubled) -> None:
        self._inner = inner
        self._log = log

    def __getattr__(self, name: str) -> object:
        return getattr(self._inner, name)

    def init(self) -> None:
        self._answer()
        self._inner.init()

    def send_offsets(self, offsets: dict[TopicPartition, OffsetCommit], group: GroupMetadata) -> None:
        self._log.tried_at_ms.append(self._log.now_ms())
        self._answer()
        self._inner.send_offsets(offsets, group)

    def commit(self) -> CommitReceipt:
        if self._log.full is not None:
            self._inner.abort()
            raise TransactionAborted("it was aborted") from self._log.full
        return self._inner.commit()

    def abort(self) -> None:
        self._answer()
        self._inner.abort()

    def _answer(self) -> None:
        if self._log.away:
            raise LogUnavailable("the broker does not answer")


@pytest.fixture
def troubled(place: Path, environment: StoreEnvironment) -> Iterator[tuple[Process, Troubled]]:
    with process_in(place, environment) as made:
        log = Troubled(made.log.client("s0"))
        log.now_ms = lambda: made.now_ms
        made.wrap = lambda _: cast(EventLog, Sleeper(cast(EventLog, log), made))
        made.start()
        made.apply(job(Schedule(every_ms=5_000, anchor_ms=T0), overlap=ALLOW))
        yield made, log


FULL = LogFull("12 MiB left, and the log keeps 128 MiB free: nothing was written; free some space and go on")


def begin(log: Troubled, how: str) -> str:
    """The trouble begins; returns what is said of it."""
    log.tried_at_ms.clear()
    if how == "full":
        log.full = FULL
        return "free some space"
    log.away = True
    return "does not answer"


def end(log: Troubled) -> None:
    log.full, log.away = None, False


TROUBLES = pytest.mark.parametrize("how", ["full", "away"])


@TROUBLES
def test_trouble_with_the_log_is_said_and_asked_about_ever_less_often(
    troubled: tuple[Process, Troubled], how: str
) -> None:
    process, log = troubled
    said = begin(log, how)
    process.trigger("one")
    until_ms = process.now_ms + 60_000

    def look() -> None:
        if process.now_ms >= until_ms:
            assert said in process.topology.log_trouble
            assert said in process.answers.broken()
            process.topology.stop()

    process.waits.clear()
    process.look_around = look
    process.topology.run()
    assert "default/a!t.one" not in process.dispatched()
    assert len(log.tried_at_ms) <= 60 / UNAVAILABLE_PAUSE_MAX_S + 4
    assert len(process.waits) < 4 * 60 / UNAVAILABLE_PAUSE_S


@TROUBLES
def test_when_the_trouble_is_over_everything_is_made_up_for_once(
    troubled: tuple[Process, Troubled], how: str
) -> None:
    process, log = troubled
    offset = process.define(job(HOURLY, id="b"))
    future = process.topology.applied(NAMES.jobs, 0, offset)
    begin(log, how)
    process.run(20_000)
    assert not future.done()
    process.trigger("one")
    process.run(5_000)
    end(log)
    process.run(round(UNAVAILABLE_PAUSE_MAX_S * 1_000) + 1_000)
    assert "" == process.topology.log_trouble == process.answers.broken()
    assert future.result(0) is None
    found = process.dispatched()
    assert len(found) == len(set(found))
    assert "default/a!t.one" in found
    decided = {
        nominal_ms
        for event in process.run_events()
        if event.cause in ("schedule", "catchup")
        for nominal_ms in range(event.nominal_ms, event.last_nominal_ms + 1, 5_000)
    }
    assert {T0 + second * 1_000 for second in range(5, 36, 5)} <= decided


@TROUBLES
def test_who_stops_meanwhile_stops_and_the_next_start_makes_up_for_it(
    troubled: tuple[Process, Troubled], how: str
) -> None:
    process, log = troubled
    begin(log, how)
    process.trigger("one")
    process.run(3_000)
    process.stop()
    end(log)
    process.start()
    process.run(1_000)
    assert 1 == process.dispatched().count("default/a!t.one")


def test_a_process_that_is_cut_off_for_a_moment_goes_on(place: Path, environment: StoreEnvironment) -> None:
    with process_in(place, environment) as process:
        process.start()
        process.apply(job(HOURLY))
        process.log.faults.cut("s0")
        process.trigger("one")
        process.run(3_000)
        process.log.faults.heal("s0")
        process.run(12_000)
        assert ["default/a!t.one"] == process.dispatched()
        assert "" == process.answers.broken()


# --- what cannot be read


DAY_MS = 86_400_000


def test_inputs_that_retention_took_before_they_were_read_are_passed_over_and_said(
    place: Path, environment: StoreEnvironment, caplog: pytest.LogCaptureFixture
) -> None:
    """A week without any stream processor costs the commands of that week, and not the processor."""
    with process_in(place, environment) as process:
        process.start()
        process.apply(job(HOURLY, overlap=ALLOW))
        process.stop()
        process.trigger("lost")
        process.clock.advance(8 * DAY_MS)
        process.log.run_maintenance_once()
        process.trigger("kept")
        process.start()
        process.run(2_000)
        assert "default/a!t.kept" in process.dispatched()
        assert "default/a!t.lost" not in process.dispatched()
        (said,) = [record.message for record in caplog.records if "retention" in record.message]
        assert f"{NAMES.commands}[0]: the records 0 to 0 were deleted" in said


def test_what_can_be_read_is_worked_on_and_what_cannot_is_read_later(
    process_and_reader: tuple[Process, "Unreadable"],
) -> None:
    process, log = process_and_reader
    process.apply(job(HOURLY))
    log.topic = NAMES.commands
    process.define(job(HOURLY, id="b"))
    process.trigger("one")
    process.run(3_000)
    assert 1 == process.row("default/b").revision
    assert "cannot be read" in process.answers.broken()
    assert [] == process.dispatched()
    log.topic = ""
    process.run(round(UNAVAILABLE_PAUSE_MAX_S * 1_000) + 1_000)
    assert ["default/a!t.one"] == process.dispatched()
    assert "" == process.answers.broken()


class Unreadable:
    """EventLog of which one topic cannot be read while it is named."""

    def __init__(self, log: EventLog) -> None:
        self._log = log
        self.topic = ""

    def __getattr__(self, name: str) -> object:
        return getattr(self._log, name)

    def group_consumer(self, group: str, *, client_id: str) -> GroupConsumer:
        consumer = self._log.group_consumer(group, client_id=client_id)
        poll = consumer.poll

        def unreadable(max_records: int, timeout_s: float) -> list[Record]:
            if self.topic:
                raise LogUnavailable(f"{self.topic} cannot be read")
            return poll(max_records, timeout_s)

        consumer.poll = unreadable  # type: ignore[method-assign]
        return consumer


@pytest.fixture
def process_and_reader(place: Path, environment: StoreEnvironment) -> Iterator[tuple[Process, Unreadable]]:
    with process_in(place, environment) as made:
        log = Unreadable(made.log.client("s0"))
        made.wrap = lambda _: cast(EventLog, log)
        made.start()
        yield made, log


# --- a disk that is full under the stores alone


def no_space(*_: object, **__: object) -> None:
    raise StoreFull("partition-0: no space is left; free some, then open the store again")


def test_a_store_that_cannot_take_a_commit_gets_it_from_the_log_when_there_is_space_again(
    troubled: tuple[Process, Troubled], monkeypatch: pytest.MonkeyPatch
) -> None:
    process, _ = troubled
    process.trigger("one")
    monkeypatch.setattr(View, "commit", no_space)
    monkeypatch.setattr(Database, "__init__", no_space)  # nor can it be opened
    process.run(3_000)
    assert "no space is left" in process.topology.log_trouble
    assert [(0, False)] == [(each.partition, each.ready) for each in process.answers.health()]
    assert 1 == process.dispatched().count("default/a!t.one")
    monkeypatch.undo()
    process.run(round(UNAVAILABLE_PAUSE_MAX_S * 1_000) + 1_000)
    assert "" == process.answers.broken()
    process.trigger("two")
    process.run(500)
    found = process.dispatched()
    assert len(found) == len(set(found))
    assert {"default/a!t.one", "default/a!t.two"} <= set(found)


def test_a_store_that_cannot_be_opened_after_a_doubtful_commit_is_opened_when_there_is_space_again(
    troubled: tuple[Process, Troubled], monkeypatch: pytest.MonkeyPatch
) -> None:
    process, _ = troubled
    process.trigger("one")
    process.log.faults.fail_next_commit("unknown_committed")
    monkeypatch.setattr(Database, "__init__", no_space)
    process.run(20_000)
    assert "no space is left" in process.answers.broken()
    monkeypatch.undo()
    process.run(round(UNAVAILABLE_PAUSE_MAX_S * 1_000) + 1_000)
    assert "" == process.answers.broken()
    assert 1 == process.dispatched().count("default/a!t.one")


def test_a_restore_that_finds_the_disk_full_goes_on_when_there_is_space_again(
    place: Path, environment: StoreEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    with process_in(place, environment) as process:
        process.start()
        process.apply(job(HOURLY))
        process.stop()
        process.open("elsewhere")
        monkeypatch.setattr(Database, "write", no_space)
        process.run(3_000)
        assert "no space is left" in process.answers.broken()
        monkeypatch.undo()
        process.run(round(UNAVAILABLE_PAUSE_MAX_S * 1_000) + 1_000)
        assert "" == process.answers.broken()
        assert 1 == process.row().revision
