"""Runs that wait for others of their job: buffered, or to replace one. When those are over, the next one goes."""

from tocsin.schemas.job import JobKey
from tocsin.schemas.rows import JobRow, RunRow
from tocsin.streams.runs import close, dispatch
from tocsin.streams.work import Work


def release(work: Work, key: JobKey, row: JobRow) -> None:
    """Start what waited for the runs that are over: a replacing run first, else the oldest buffered one."""
    seen = work.looked_at(key, row)
    if any(run.outstanding for run in seen) or not any(run.status in ("waiting", "buffered") for run in seen):
        return
    runs = work.open_runs(key, row)
    waiting = [run for run in runs if run.status == "waiting"]
    buffered = [run for run in runs if run.status == "buffered"]
    chosen = waiting[-1] if waiting else buffered[0]
    for run in runs:
        if run.status == "retrying":
            if chosen.status == "buffered" and not _gives_way(work, key, run, chosen):
                return
            close(work, key, row, run, "supersede", "replaced" if waiting else "next_occurrence")
        elif waiting and run is not chosen and run.status == "waiting":
            close(work, key, row, run, "supersede", "replaced")
    definition = work.definition(key, chosen.revision)
    assert definition is not None, f"{chosen.run_id}: its revision {chosen.revision} is gone"
    dispatch(work, row, chosen, definition, due_ms=max(work.now_ms, chosen.due_ms), retry=False)


def _gives_way(work: Work, key: JobKey, retrying: RunRow, buffered: RunRow) -> bool:
    """Whether a run that waits for a retry is superseded by the buffered occurrence (a trigger supersedes nothing)."""
    definition = work.definition(key, retrying.revision)
    assert definition is not None, f"{retrying.run_id}: its revision {retrying.revision} is gone"
    return definition.job.retry.until_next and buffered.cause in ("schedule", "catchup")
