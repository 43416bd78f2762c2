"""`--standby`: stores that follow what others own, when such a process joins, and what a takeover has left to do."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.streams.crowd import Crowd, crowd_in
from tests.unit.streams.driver import NAMES, T0, job
from tocsin.schemas.job import Overlap, Schedule
from tocsin.streams import standby as standby_module
from tocsin.streams.families import COLUMN_FAMILIES, META
from tocsin.streams.rocks import Database
from tocsin.streams.store import PartitionStore, StoreCorrupt, StoreEnvironment, StoreFull
from tocsin.streams.topology import FOLLOW_S

EVERY_SECOND = Schedule(every_ms=1_000, anchor_ms=T0)
HOURLY = Schedule(every_ms=3_600_000)
ALLOW = Overlap(mode="allow")
PARTITIONS = 4
DAY_MS = 86_400_000


@pytest.fixture
def crowd(place: Path, environment: StoreEnvironment) -> Iterator[Crowd]:
    with crowd_in(place, environment, partitions=PARTITIONS) as made:
        yield made


def define_many(crowd: Crowd, count: int = 12, schedule: Schedule = EVERY_SECOND) -> None:
    for number in range(count):
        crowd.define(job(schedule, id=f"j{number}", overlap=ALLOW))


def contents(store: PartitionStore) -> dict[str, list[tuple[bytes, bytes]]]:
    return {name: list(store.database.items(name)) for name in COLUMN_FAMILIES if name != META}


def followed(crowd: Crowd, name: str) -> dict[int, PartitionStore]:
    followers = crowd.living[name].holdings.followers
    assert followers is not None
    return {number: each.store for number, each in followers.followed.items()}


def is_nearly_current(crowd: Crowd, name: str) -> bool:
    found = crowd.status(name).followed
    return bool(found) and all(each.nearly_current for each in found)


def run_until_current(crowd: Crowd, name: str) -> None:
    for _ in range(400):
        crowd.step(25)
        if is_nearly_current(crowd, name):
            return
    raise AssertionError(f"not current: {crowd.status(name).followed}")


def enter_two(crowd: Crowd) -> None:
    """Two standbys, each with a share of its own."""
    for name in ("s0", "s1"):
        crowd.enter(name, standby=True)
        for _ in range(200):
            crowd.step(25)
            if crowd.status(name).joined:
                break
        crowd.settle()
    assert all(crowd.owners().values())


def test_one_that_finds_nobody_joins_at_once(crowd: Crowd) -> None:
    crowd.enter("s0", standby=True)
    crowd.run(300)
    assert crowd.status("s0").joined
    crowd.settle()
    assert set(range(PARTITIONS)) == crowd.owned("s0")
    assert {} == followed(crowd, "s0")


def test_one_that_finds_others_follows_first_and_joins_when_it_is_nearly_current(
    crowd: Crowd, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(standby_module, "NEARLY_CURRENT", 10)
    monkeypatch.setattr(standby_module, "FOLLOW_ALONE_STEP", 5)
    crowd.enter("s0")
    crowd.settle()
    define_many(crowd, 200, HOURLY)
    crowd.run(2_000)
    crowd.enter("s1", standby=True)
    behind = []
    for _ in range(2_000):
        crowd.step(5)
        status = crowd.status("s1")
        if status.joined:
            break
        assert set() == crowd.owned("s1")
        assert "standby" in status.summary
        assert "standby" in crowd.status("s1").summary
        behind.append(sum(each.behind or 0 for each in status.followed))
        assert ["s0"] == [each.client_id for each in crowd.log.members(NAMES.streams_group)]
    else:
        raise AssertionError("it does not join")
    assert max(behind) > 200 > 4 * 10 >= behind[-1]
    crowd.settle()
    assert 2 == len(crowd.owned("s1"))
    assert set(range(PARTITIONS)) - crowd.owned("s1") == followed(crowd, "s1").keys()


def test_what_is_followed_is_what_its_owner_has(crowd: Crowd) -> None:
    enter_two(crowd)
    define_many(crowd)
    crowd.run(4_000)
    for name, other in (("s0", "s1"), ("s1", "s0")):
        owned = crowd.living[name].partitions
        stores = followed(crowd, other)
        assert owned.keys() == stores.keys()
        for number, each in owned.items():
            for _ in range(50):
                crowd.living[other].run_once()  # nobody else works meanwhile
            assert contents(each.store) == contents(stores[number])
            assert [] == stores[number].verify()


def test_a_takeover_goes_on_with_the_store_that_was_followed(crowd: Crowd) -> None:
    enter_two(crowd)
    define_many(crowd)
    crowd.run(3_000)
    stores = followed(crowd, "s1")
    read_upto = {number: store.meta.changelog_offset for number, store in stores.items()}
    assert all(offset > 0 for offset in read_upto.values())
    crowd.kill("s0")
    crowd.settle()
    for number, store in stores.items():
        assert crowd.living["s1"].partitions[number].store is store
        assert "" == store.wiped
    assert {} == followed(crowd, "s1")
    crowd.run(3_000)
    found = crowd.dispatched()
    assert len(found) == len(set(found))
    for each in crowd.living["s1"].partitions.values():
        assert [] == each.store.verify()


def test_what_is_lost_is_followed_from_where_it_was(crowd: Crowd) -> None:
    first = crowd.enter("s0", standby=True)
    crowd.settle()
    define_many(crowd)
    crowd.run(2_000)
    stores = {number: each.store for number, each in first.partitions.items()}
    crowd.enter("s1")
    crowd.settle()
    after = followed(crowd, "s0")
    assert after
    assert all(stores[number] is store for number, store in after.items())
    crowd.run(3_000)
    run_until_current(crowd, "s0")
    crowd.kill("s1")
    crowd.settle()
    assert all(first.partitions[number].store is store for number, store in stores.items())
    crowd.run(2_000)
    found = crowd.dispatched()
    assert len(found) == len(set(found))


def test_one_that_was_frozen_follows_what_it_lost(crowd: Crowd) -> None:
    enter_two(crowd)
    define_many(crowd)
    crowd.run(2_000)
    crowd.frozen.add("s0")
    crowd.run(9_000)
    crowd.frozen.discard("s0")
    crowd.settle()
    crowd.run(2_000)
    assert set(range(PARTITIONS)) == crowd.owned("s0") | followed(crowd, "s0").keys()
    found = crowd.dispatched()
    assert len(found) == len(set(found))
    for store in followed(crowd, "s0").values():
        assert [] == store.verify()


def test_without_standby_a_store_is_kept_and_read_on_from_where_it_was(crowd: Crowd) -> None:
    first = crowd.enter("s0")
    crowd.settle()
    define_many(crowd)
    crowd.run(2_000)
    crowd.enter("s1")
    crowd.settle()
    gone = set(range(PARTITIONS)) - crowd.owned("s0")
    kept_upto = {}
    for number in gone:
        store = PartitionStore.open(crowd.path / "s0" / f"partition-{number}", crowd.environment)
        kept_upto[number] = store.meta.changelog_offset
        store.close()
    crowd.run(2_000)
    crowd.leave("s1")
    crowd.settle()
    assert set(range(PARTITIONS)) == crowd.owned("s0")
    assert all(offset > 0 for offset in kept_upto.values())
    assert all("" == each.store.wiped for each in first.partitions.values())


def test_a_store_that_is_too_old_to_follow_on_is_wiped(crowd: Crowd) -> None:
    crowd.enter("s0")
    crowd.settle()
    define_many(crowd, schedule=HOURLY)
    crowd.run(1_000)
    crowd.enter("s1", standby=True)
    crowd.settle()
    crowd.leave("s1")
    crowd.settle()
    crowd.run(4 * DAY_MS, every_ms=3_600_000)
    crowd.settle()
    second = crowd.enter("s1", standby=True)
    crowd.run(2_000)
    followers = second.holdings.followers
    assert followers is not None
    wiped = [each.restore.wiped for each in followers.followed.values()]
    assert any("h old" in reason for reason in wiped)
    run_until_current(crowd, "s1")


def test_a_pass_reads_only_so_much_of_what_is_followed_and_no_partition_is_starved(
    crowd: Crowd, monkeypatch: pytest.MonkeyPatch
) -> None:
    enter_two(crowd)
    monkeypatch.setattr(standby_module, "FOLLOW_STEP", 20)
    crowd.frozen.add("s0")
    define_many(crowd, 400, HOURLY)
    crowd.run(2_000)
    crowd.frozen.discard("s0")
    first = crowd.living["s0"]
    followers = first.holdings.followers
    assert followers is not None
    before = {number: each.restore.taken for number, each in followers.followed.items()}
    most = 0
    for _ in range(200):
        taken = sum(each.restore.taken for each in followers.followed.values())
        first.run_once()
        most = max(most, sum(each.restore.taken for each in followers.followed.values()) - taken)
        crowd.clock.advance(5)
    assert 0 < most <= 2 * 20  # so much of the changelog, and of the run events
    assert is_nearly_current(crowd, "s0")
    for number, each in followers.followed.items():
        assert each.restore.taken > before.get(number, 0)


def test_a_followed_store_that_is_damaged_is_made_anew(crowd: Crowd, monkeypatch: pytest.MonkeyPatch) -> None:
    enter_two(crowd)
    define_many(crowd)
    followers = crowd.living["s0"].holdings.followers
    assert followers is not None
    number, damaged = next(iter(followers.followed.items()))

    def fail(*_: object) -> None:
        raise StoreCorrupt("a block cannot be read")

    monkeypatch.setattr(damaged.restore, "step", fail)
    crowd.run(1_000)
    assert followers.followed[number] is not damaged
    run_until_current(crowd, "s0")
    assert [] == followers.followed[number].store.verify()


def test_a_disk_that_is_full_pauses_following_and_not_the_work(
    crowd: Crowd, monkeypatch: pytest.MonkeyPatch
) -> None:
    enter_two(crowd)
    define_many(crowd)
    crowd.run(2_000)
    followers = crowd.living["s0"].holdings.followers
    assert followers is not None

    def full(*_: object, **__: object) -> None:
        raise StoreFull("no space is left")

    for each in followers.followed.values():
        monkeypatch.setattr(each.restore, "step", full)
    monkeypatch.setattr(Database, "__init__", full)
    before = len(crowd.dispatched())
    crowd.run(5_000)
    assert {} == followers.followed
    assert crowd.owned("s0")
    assert len(crowd.dispatched()) > before + 12 * 4
    monkeypatch.undo()
    crowd.run(12_000)
    run_until_current(crowd, "s0")


def test_a_standby_does_not_wake_with_every_commit_of_the_others(crowd: Crowd) -> None:
    enter_two(crowd)
    crowd.run(3_000)
    first = crowd.living["s0"]
    assert not any(where.topic == NAMES.state for each in first._awaited() for where in each.assigned())
    assert first.wait_s() <= FOLLOW_S


def test_one_that_has_not_joined_yet_joins_when_the_last_member_is_gone(
    crowd: Crowd, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(standby_module, "NEARLY_CURRENT", -1)  # it is never near enough
    crowd.enter("s0")
    crowd.settle()
    crowd.enter("s1", standby=True)
    crowd.run(3_000)
    assert not crowd.status("s1").joined
    assert "joining" in crowd.status("s1").summary or "behind" in crowd.status("s1").summary
    crowd.kill("s0")
    crowd.settle()
    assert set(range(PARTITIONS)) == crowd.owned("s1")
