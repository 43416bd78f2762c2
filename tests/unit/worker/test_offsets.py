"""The offset tracker against the plainest possible bookkeeping, and the metadata that carries it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tocsin.log.port import OFFSET_METADATA_BYTES_MAX
from tocsin.worker.offsets import (
    WINDOW_MAX,
    ForeignMetadata,
    OffsetTracker,
    read_metadata,
    write_metadata,
)


def after_restart(tracker: OffsetTracker) -> tuple[int, frozenset[int]]:
    """What the next owner knows."""
    low = tracker.low()
    return low, read_metadata(low, write_metadata(1, tracker.bits())).finished


@given(
    start=st.integers(0, 50),
    gaps=st.lists(st.integers(1, 4), max_size=60),
    finished_by=st.sets(st.integers(0, 59)),
    ahead=st.sets(st.integers(0, 150)),
    trailing=st.integers(0, 5),
)
def test_the_next_owner_executes_exactly_what_is_unfinished(
    start: int, gaps: list[int], finished_by: set[int], ahead: set[int], trailing: int
) -> None:
    tracker = OffsetTracker(start, ahead)
    delivered, offset = [], start
    for gap in gaps:  # a gap of 1 is no gap; every other offset up to the next record is never delivered
        delivered.append(offset)
        offset += gap
    unfinished = [o for o in delivered if tracker.deliver(o)]
    assert [o for o in delivered if o not in ahead] == unfinished
    if delivered and trailing:
        tracker.advance(offset + trailing)
    for index in finished_by:
        if index < len(delivered):
            tracker.finish(delivered[index])

    left = {o for index, o in enumerate(delivered) if index not in finished_by and o not in ahead}
    low, finished = after_restart(tracker)
    assert (min(left) if left else tracker.position) == low
    assert not left & finished
    for o in range(low, tracker.position):
        assert (o in left) != (o in finished)
    # What an earlier owner had finished beyond our position is still finished.
    assert {o for o in ahead if o >= tracker.position} == {o for o in finished if o >= tracker.position}


def test_nothing_finished_above_the_lowest_unfinished_needs_no_bits() -> None:
    tracker = OffsetTracker(10)
    for offset in range(10, 20):
        tracker.deliver(offset)
    for offset in range(10, 15):
        tracker.finish(offset)
    assert (15, b"") == (tracker.low(), tracker.bits())


def test_bits_are_counted_from_the_lowest_unfinished_offset() -> None:
    tracker = OffsetTracker(10)
    for offset in range(10, 20):
        tracker.deliver(offset)
    tracker.finish(12)
    tracker.finish(19)
    assert (10, bytes((0b0000_0100, 0b0000_0010))) == (tracker.low(), tracker.bits())


def test_a_hole_below_the_position_that_an_earlier_owner_knew_is_no_bit_any_more() -> None:
    tracker = OffsetTracker(0, {0, 1})
    for offset in (0, 2):
        tracker.deliver(offset)
    assert (2, b"") == (tracker.low(), tracker.bits())


def test_finishing_twice_or_something_unknown_changes_nothing() -> None:
    tracker = OffsetTracker(0)
    tracker.deliver(0)
    tracker.finish(0)
    tracker.finish(0)
    tracker.finish(7)
    assert (1, 0) == (tracker.low(), tracker.unfinished())


def test_the_metadata_of_a_full_window_fits_into_an_offset_commit() -> None:
    tracker = OffsetTracker(0)
    for offset in range(WINDOW_MAX + 1):
        tracker.deliver(offset)
    for offset in range(1, WINDOW_MAX + 1):
        tracker.finish(offset)
    metadata = write_metadata(2**40, tracker.bits())
    assert len(metadata) <= OFFSET_METADATA_BYTES_MAX
    assert frozenset(range(1, WINDOW_MAX + 1)) == read_metadata(0, metadata).finished


def test_v18_metadata_that_cannot_fit_is_cut_off_and_forgets_what_was_finished() -> None:
    # Only without W9: what is cut off runs again.
    tracker = OffsetTracker(0)
    for offset in range(2 * WINDOW_MAX):
        tracker.deliver(offset)
    tracker.finish(2 * WINDOW_MAX - 1)
    metadata = write_metadata(1, tracker.bits())
    assert len(metadata) <= OFFSET_METADATA_BYTES_MAX
    assert frozenset() == read_metadata(0, metadata).finished


def test_the_epoch_travels_with_the_bits() -> None:
    assert (7, frozenset({8})) == tuple(read_metadata(5, write_metadata(7, b"\x08")))


@pytest.mark.parametrize(
    "metadata", ["", "set by hand", "2:1:", "1:x:", "1:1:***", "1:1", "1:-1:", "1:1:AA==:"]
)
def test_metadata_of_somebody_else_is_recognised(metadata: str) -> None:
    with pytest.raises(ForeignMetadata):
        read_metadata(0, metadata)
