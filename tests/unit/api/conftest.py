from collections.abc import Iterator

import pytest

from tests.unit.api.fakes import FakeNode, fake_node


@pytest.fixture
def node() -> Iterator[FakeNode]:
    with fake_node() as made:
        yield made
