"""Pages of several owners as one page. Pure; no HTTP."""

from collections.abc import Callable, Sequence
from typing import TypeVar

from tocsin.schemas.records import DeadLetter, RunEvent
from tocsin.streams import cursors
from tocsin.streams.queries import JobView, MissingPartition, Page

T = TypeVar("T")
Place = tuple[str, int]
"""Where an item stands in the order of all: its key, and the seq of its run if there are several."""


def merge_jobs(
    pages: Sequence[Page[JobView]], limit: int, missing: Sequence[MissingPartition]
) -> Page[JobView]:
    """In the order of their keys."""
    return _merge(
        pages,
        limit,
        missing,
        place=lambda view: (view.key, 0),
        cursor=lambda view: view.key,
        read=lambda text: (text, 0),
    )


def merge_dead_letters(
    pages: Sequence[Page[DeadLetter]], limit: int, missing: Sequence[MissingPartition]
) -> Page[DeadLetter]:
    """In the order of job and seq."""
    return _merge(
        pages,
        limit,
        missing,
        place=lambda letter: (_key(letter.run), letter.run.seq),
        cursor=lambda letter: f"{_key(letter.run)}:{letter.run.seq}",
        read=cursors.job_and_seq,
    )


def _merge(
    pages: Sequence[Page[T]],
    limit: int,
    missing: Sequence[MissingPartition],
    *,
    place: Callable[[T], Place],
    cursor: Callable[[T], str],
    read: Callable[[str], Place],
) -> Page[T]:
    """Whoever has more to come is known only up to its cursor, so the merged page ends at the lowest of these.

    Its own cursor is a place in the order of all items and says nothing of owners, so that the next page may be gathered
    from others. Of an item that came twice (its partition moved while it was asked) the later answer counts.
    """
    ends = {read(page.next_cursor): page.next_cursor for page in pages if page.next_cursor}
    found = {place(item): item for page in pages for item in page.items}
    known = sorted(found)
    last = min(ends, default=None)
    if last is not None:
        known = [at for at in known if not last < at]
    items = [found[at] for at in known[:limit]]
    if len(known) > limit:
        following = cursor(items[-1])
    else:
        following = "" if last is None else ends[last]
    return Page(items=items, next_cursor=following, missing=missing)


def merge_recent_runs(
    pages: Sequence[Page[RunEvent]], limit: int, missing: Sequence[MissingPartition]
) -> Page[RunEvent]:
    """The newest first by the time of their last event, each run once.

    An owner whose page was cut (it has a cursor) knows of more that is older: what is older elsewhere is left out as well.
    """
    since_ms = max((page.items[-1].event_ms for page in pages if page.next_cursor and page.items), default=0)
    found: dict[str, RunEvent] = {}
    for page in pages:
        for event in page.items:
            known = found.get(event.run_id)
            if event.event_ms >= since_ms and (known is None or known.event_ms <= event.event_ms):
                found[event.run_id] = event
    newest = sorted(found.values(), key=lambda event: (-event.event_ms, event.run_id))
    return Page(items=newest[:limit], missing=missing)


def _key(run: RunEvent) -> str:
    return f"{run.namespace}/{run.job_id}"
