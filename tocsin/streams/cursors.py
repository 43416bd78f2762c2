"""The cursors of paged answers: where a page ended, as text. They come back from anybody, so each is checked."""

import re
from typing import Final

from tocsin.schemas.job import JobKey
from tocsin.schemas.limits import ID_PATTERN

_KEY: Final = re.compile(f"{ID_PATTERN}/{ID_PATTERN}")
_NUMBER: Final = re.compile("[0-9]{1,18}")  # a seq and a place in a list are stored in 8 bytes


class InvalidCursor(ValueError):
    """The text is no cursor that a page of this kind ended with."""

    def __init__(self) -> None:
        super().__init__(
            "this is no `next_cursor` of a page of this list: leave it out to begin at the start"
        )


def job_key(cursor: str) -> JobKey:
    """The job that the page ended with. Raises InvalidCursor."""
    if not _KEY.fullmatch(cursor):
        raise InvalidCursor
    return JobKey(cursor)


def place(cursor: str) -> int:
    """How many items of the list came before. Raises InvalidCursor."""
    if not _NUMBER.fullmatch(cursor):
        raise InvalidCursor
    return int(cursor)


def job_and_seq(cursor: str) -> tuple[JobKey, int]:
    """The dead letter that the page ended with, from `namespace/id:seq`. Raises InvalidCursor."""
    key, _, seq = cursor.rpartition(":")
    return job_key(key), place(seq)
