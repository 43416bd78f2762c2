import pytest

from tests.unit.worker.world import World


@pytest.fixture
def world() -> World:
    return World()
