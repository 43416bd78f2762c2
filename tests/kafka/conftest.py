"""Clusters for the scenarios: each on a prefix, and in directories, of its own."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kafka.cluster import Cluster, made
from tests.kafka.telling import Tell, teller


@pytest.fixture
def cluster(kafka_bootstrap: str, tmp_path: Path) -> Iterator[Cluster]:
    """On the broker that all tests share; nothing is started yet."""
    with made(kafka_bootstrap, tmp_path) as found:
        yield found


@pytest.fixture(scope="module")
def shared_cluster(kafka_bootstrap: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One cluster for the tests of a module, which run in one process (see the group in the module's marks)."""
    with made(kafka_bootstrap, tmp_path_factory.mktemp("cluster")) as found:
        yield found


@pytest.fixture
def tell(request: pytest.FixtureRequest) -> Tell:
    return teller(request)
