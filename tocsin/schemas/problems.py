"""Everything that can be wrong with a definition, whoever made it: the API, the client and the processors ask the same.

Pure. What is wrong is said with the document's names (`retry.base`), a slug that programs can test, a sentence that
says what is wrong and what would be right, and the value that was given.
"""

import re
from collections.abc import Iterator
from typing import Final

from tocsin.schedules import format_duration
from tocsin.schemas.bounds import duration_text, not_matching, outside_durations, outside_numbers, problem
from tocsin.schemas.job import CatchUp, Job, Overlap, Pairs, Problem, Retry
from tocsin.schemas.limits import (
    ATTEMPTS_MAX,
    CATCHUP_RUNS_MAX,
    CATCHUP_WINDOW_MS_MAX,
    DESCRIPTION_LENGTH_MAX,
    DOCUMENT_BYTES_MAX,
    FACTOR_MAX,
    GRACE_MS_MAX,
    GRACE_MS_MIN,
    ID_LENGTH_MAX,
    ID_PATTERN,
    LABEL_KEY_PATTERN,
    LABEL_VALUE_LENGTH_MAX,
    LABELS_MAX,
    LEASE_MS_MAX,
    LEASE_MS_MIN,
    RETRY_AGE_MS_MAX,
    RETRY_AGE_MS_MIN,
    RETRY_DELAY_MS_MAX,
    RUNS_MAX,
    SECOND_MS,
    WAITING_MAX,
)
from tocsin.schemas.schedule_problems import schedule_problems
from tocsin.schemas.target_problems import target_problems

_ID: Final = re.compile(ID_PATTERN)
_ID_FORM: Final = "a letter or digit first, then letters, digits, . _ and -"
_LABEL_KEY: Final = re.compile(LABEL_KEY_PATTERN)
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]")
CONTROL_CHARACTER: Final = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
"""What text of several lines may not hold: all but tab and the ends of lines. It would steer the reader's terminal."""


def problems(job: Job, *, now_ms: int | None = None) -> tuple[Problem, ...]:
    """All that is wrong with `job`; nothing: it may be put in force.

    With `now_ms`, also that an `at` lies too far in the past. The processors leave it out, since they answer that
    through the log, and an unchanged definition is never refused.
    """
    found: list[Problem] = []
    for field, text in (("namespace", job.namespace), ("id", job.id), ("queue", job.queue)):
        if not _ID.fullmatch(text):
            found += not_matching(field, text, _ID, "id-grammar", _ID_FORM, ID_LENGTH_MAX)
    if len(job.description) > DESCRIPTION_LENGTH_MAX:
        message = f"a description has at most {DESCRIPTION_LENGTH_MAX:,} characters, this one {len(job.description):,}"
        found.append(problem("description", "description-length", message, job.description))
    elif (wrong := CONTROL_CHARACTER.search(job.description)) is not None:
        message = f"the character {wrong[0]!r} cannot stand in a description"
        found.append(problem("description", "control-character", message, job.description))
    if job.labels:
        found += _label_problems(job.labels)
    found += schedule_problems(job.schedule, job.catchup, now_ms)
    found += target_problems(job)
    if job.retry != _RETRY:
        found += _retry_problems(job.retry)
    found += outside_durations("lease", job.lease_ms, LEASE_MS_MIN, LEASE_MS_MAX)
    if job.overlap != _OVERLAP:
        found += _overlap_problems(job.overlap)
    if job.catchup != _CATCHUP:
        found += _catchup_problems(job.catchup)
    if job.auto_pause_after is not None:
        found += outside_numbers("auto_pause_after", job.auto_pause_after, 1, RUNS_MAX)
    if (size := _size(job)) > DOCUMENT_BYTES_MAX:
        message = f"a definition holds at most {DOCUMENT_BYTES_MAX:,} bytes (256 KiB), this one {size:,}"
        found.append(problem("", "document-size", message, f"{size} bytes"))
    return tuple(found)


_RETRY: Final = Retry()
_OVERLAP: Final = Overlap()
_CATCHUP: Final = CatchUp()


def _label_problems(labels: Pairs) -> Iterator[Problem]:
    if len(labels) > LABELS_MAX:
        message = f"a job has at most {LABELS_MAX} labels, not {len(labels)}"
        yield problem("labels", "labels-max", message, str(len(labels)))
        return
    for i, (key, value) in enumerate(labels):
        field = f"labels.{key[:64]}"
        if not _LABEL_KEY.fullmatch(key):
            form = "a letter or digit first, then letters, digits, . _ / and -, 63 characters in all"
            yield problem(field, "label-key", f"{key[:64]!r} is no name of a label: {form}", key)
        if len(value) > LABEL_VALUE_LENGTH_MAX:
            message = (
                f"the value of a label has at most {LABEL_VALUE_LENGTH_MAX} characters, this one {len(value)}"
            )
            yield problem(field, "label-value", message, value)
        elif (wrong := _CONTROL.search(value)) is not None:
            message = f"the character {wrong[0]!r} cannot stand in the value of a label"
            yield problem(field, "label-value", message, value)
        if any(key == other for other, _ in labels[:i]):
            yield problem(field, "label-duplicate", f"the label {key} is given twice: keep one", value)


def _retry_problems(retry: Retry) -> Iterator[Problem]:
    yield from outside_numbers("retry.max_attempts", retry.max_attempts, 1, ATTEMPTS_MAX)
    yield from outside_durations("retry.base", retry.base_ms, 1, RETRY_DELAY_MS_MAX)
    yield from outside_numbers("retry.factor", retry.factor, 1.0, FACTOR_MAX)
    yield from outside_durations("retry.max", retry.max_ms, 1, RETRY_DELAY_MS_MAX)
    yield from outside_numbers("retry.jitter", retry.jitter, 0.0, 1.0)
    yield from outside_durations("retry.max_age", retry.max_age_ms, RETRY_AGE_MS_MIN, RETRY_AGE_MS_MAX)
    if retry.backoff == "list":
        if not retry.delays_ms:
            yield problem("retry.delays", "delays", "backoff: list needs delays, for example [10s, 1m, 10m]")
        elif len(retry.delays_ms) >= ATTEMPTS_MAX:
            message = f"at most {ATTEMPTS_MAX - 1} delays lie between {ATTEMPTS_MAX} attempts, not {len(retry.delays_ms)}"
            yield problem("retry.delays", "delays", message, str(len(retry.delays_ms)))
        for i, delay_ms in enumerate(retry.delays_ms[:ATTEMPTS_MAX]):
            for each in outside_durations("retry.delay", delay_ms, 1, RETRY_DELAY_MS_MAX):
                yield problem(f"retry.delays[{i}]", each.rule, each.message, each.value)
    else:
        if retry.delays_ms:
            message = f"delays are for backoff: list, and backoff is {retry.backoff}: set it to list, or leave delays out"
            yield problem("retry.delays", "delays", message)
        if retry.max_ms < retry.base_ms:
            longest, first = duration_text(retry.max_ms), duration_text(retry.base_ms)
            message = f"max ({longest}) is shorter than base ({first}): raise max, or lower base"
            yield problem("retry.max", "order", message, longest)


def _overlap_problems(overlap: Overlap) -> Iterator[Problem]:
    if overlap.mode == "buffer_all":
        yield from outside_numbers("overlap.limit", overlap.limit, 1, WAITING_MAX)
    elif overlap.limit != _OVERLAP.limit:
        message = (
            f"limit bounds the runs that wait under buffer_all, and mode is {overlap.mode}: leave it out"
        )
        yield problem("overlap.limit", "needs-buffer-all", message, str(overlap.limit))


def _catchup_problems(catchup: CatchUp) -> Iterator[Problem]:
    yield from outside_durations("catchup.window", catchup.window_ms, SECOND_MS, CATCHUP_WINDOW_MS_MAX)
    yield from outside_numbers("catchup.limit", catchup.limit, 1, CATCHUP_RUNS_MAX)
    yield from outside_durations("catchup.grace", catchup.grace_ms, GRACE_MS_MIN, GRACE_MS_MAX)
    if GRACE_MS_MIN <= catchup.window_ms < catchup.grace_ms <= GRACE_MS_MAX:
        message = f"window is shorter than grace ({format_duration(catchup.grace_ms)}): nothing could be missed within it"
        yield problem("catchup.window", "order", message, format_duration(catchup.window_ms))


def _size(job: Job) -> int:
    """Bytes of everything in the definition whose length is not fixed, about as many as its record takes."""
    size = len(job.description) + sum([len(k) + len(v) for k, v in job.labels])
    size += sum([len(each) for each in job.schedule.cron]) + sum(
        [16 + len(each.cron) for each in job.schedule.exclude]
    )
    if job.http is not None:
        size += len(job.http.url) + len(job.http.body) + sum([len(k) + len(v) for k, v in job.http.headers])
    if job.function is not None:
        size += len(job.function.arguments)
    return size
