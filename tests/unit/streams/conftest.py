from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.streams.driver import Driver, driven
from tests.unit.streams.process import quick_directory
from tocsin.streams.store import StoreEnvironment


@pytest.fixture(scope="session")
def environment() -> StoreEnvironment:
    return StoreEnvironment(cache_bytes=8 << 20, write_buffer_bytes=8 << 20, row_cache_bytes=4 << 20)


@pytest.fixture
def drive(tmp_path: Path, environment: StoreEnvironment) -> Iterator[Driver]:
    with driven(tmp_path / "store", environment) as driver:
        yield driver


@pytest.fixture
def place() -> Iterator[Path]:
    with quick_directory() as made:
        yield made
