"""What a stream processor fails with that explains itself: the message says what is wrong and what to do."""

from typing import Final

from tocsin.log.port import LogError
from tocsin.streams.configuration import NewerSchemaLevel, NotInitialised, OtherTimeZoneData
from tocsin.streams.families import UnknownFamily
from tocsin.streams.restore import RestoreFailed
from tocsin.streams.store import StoreError

EXPLAINED: Final[tuple[type[Exception], ...]] = (
    LogError,
    NewerSchemaLevel,
    NotInitialised,
    OtherTimeZoneData,
    RestoreFailed,
    StoreError,
    UnknownFamily,
)
"""Where they came from helps nobody, so that they are told without a traceback."""
