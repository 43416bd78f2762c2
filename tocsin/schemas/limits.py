"""What a job definition may hold at most. The rules, the published JSON Schema and the docs take the numbers from here."""

from typing import Final

SECOND_MS: Final = 1_000
MINUTE_MS: Final = 60 * SECOND_MS
HOUR_MS: Final = 60 * MINUTE_MS
DAY_MS: Final = 24 * HOUR_MS

ID_LENGTH_MAX: Final = 128
ID_PATTERN: Final = r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}"
FUNCTION_PATTERN: Final = r"[A-Za-z_][A-Za-z0-9_.-]{0,127}"

DOCUMENT_BYTES_MAX: Final = 256 * 1024
"""Of everything in a definition. A due run carries most of it, and a record is at most 768 KiB."""
BODY_BYTES_MAX: Final = 200 * 1024
DESCRIPTION_LENGTH_MAX: Final = 4_096

LABELS_MAX: Final = 16
LABEL_KEY_PATTERN: Final = r"[A-Za-z0-9][A-Za-z0-9._/-]{0,62}"
LABEL_VALUE_LENGTH_MAX: Final = 128

EXPRESSIONS_MAX: Final = 64
"""In a union, and among the exclusions: the next occurrence of a job asks each of them."""
EXCLUSIONS_MAX: Final = 400
"""A year of single days, and more."""
EVERY_MS_MIN: Final = SECOND_MS
INTERVAL_MS_MAX: Final = 3_660 * DAY_MS
"""Ten years, of every and of delay."""
SPREAD_MS_MAX: Final = DAY_MS
RUNS_MAX: Final = 2**53 - 1
"""The largest count that JSON carries everywhere."""

URL_LENGTH_MAX: Final = 8_192
HEADERS_MAX: Final = 64
HEADER_VALUE_LENGTH_MAX: Final = 8_192
SUCCESS_RANGES_MAX: Final = 32
STATUS_MIN: Final = 100
STATUS_MAX: Final = 599
TIMEOUT_MS_MIN: Final = SECOND_MS
TIMEOUT_MS_MAX: Final = 15 * MINUTE_MS

ATTEMPTS_MAX: Final = 100
FACTOR_MAX: Final = 100.0
"""The delay is computed as base * factor ** 64 at most, which must stay a number."""
RETRY_DELAY_MS_MAX: Final = 7 * DAY_MS
RETRY_AGE_MS_MIN: Final = SECOND_MS
RETRY_AGE_MS_MAX: Final = 30 * DAY_MS

LEASE_MS_MIN: Final = SECOND_MS
LEASE_MS_MAX: Final = DAY_MS
"""A worker that dies keeps its run from being tried again for so long."""

WAITING_MAX: Final = 1_000
"""Runs of one job that wait under buffer_all."""
CATCHUP_WINDOW_MS_MAX: Final = 30 * DAY_MS
CATCHUP_RUNS_MAX: Final = 1_000
"""Runs that one job opens at once after an outage."""
GRACE_MS_MIN: Final = SECOND_MS
"""Less, and an occurrence would be missed while it is on its way to a worker."""
GRACE_MS_MAX: Final = DAY_MS
