"""What holds for every test: nothing of the machine it runs on shows through."""

import ipaddress
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests import brokers as kafkas
from tocsin.broker import BrokerFailed, LocalKafka

# A test must not depend on speed, so nothing is timed. `make test` tries the same examples every time; `make test-full`
# tries more, and new ones.
settings.register_profile(
    "test", derandomize=True, deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("full", parent=settings.get_profile("test"), derandomize=False, max_examples=2_000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "test"))

# No zone in use has this offset: whatever takes local time for UTC, or for the job's zone, is seen.
os.environ["TZ"] = "XXX-5:43"
time.tzset()

# A node, a key or a broker of the person who runs the tests. TOCSIN_TEST_... is meant for the tests, and where Kafka's
# jars are kept is a matter of the machine.
for name in [
    name
    for name in os.environ
    if name.startswith("TOCSIN_")
    and not name.startswith(("TOCSIN_TEST_", "TOCSIN_KAFKA_CACHE", "TOCSIN_MAVEN_"))
]:
    del os.environ[name]


def _refuse_other_machines(event: str, arguments: tuple[object, ...]) -> None:
    if event != "socket.connect":
        return
    address = arguments[1]
    if not isinstance(address, tuple):  # a Unix socket
        return
    host = str(address[0])
    try:
        loopback = ipaddress.ip_address(host).is_loopback
    except ValueError:
        loopback = host == "localhost"
    if not loopback:
        # Not an OSError: the code under test would take that for an answer of the network.
        pytest.fail(f"a test tried to connect to {host}: tests stay on this machine")


sys.addaudithook(_refuse_other_machines)


@pytest.fixture(scope="session")
def kafka_bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of one broker for the whole run, all of xdist's processes included: use a topic prefix of your own.

    TOCSIN_TEST_KAFKA=host:port names one that runs already.
    """
    given = os.environ.get(kafkas.GIVEN)
    if given:
        yield given
        return
    base = tmp_path_factory.getbasetemp()
    # With xdist each process has a folder of its own, in the one of the run.
    shared = kafkas.SharedKafka((base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "broker")
    try:
        address = shared.hold()
    except BrokerFailed as error:
        kafkas.failed(error)
    yield address
    shared.release()


@pytest.fixture
def local_kafka(tmp_path: Path) -> Iterator[Callable[..., LocalKafka]]:
    """Starts a Kafka for this test alone, which may kill its brokers: `local_kafka()`, `local_kafka(brokers=3)`."""
    own = kafkas.OwnKafkas(tmp_path)

    def start(brokers: int = 1) -> LocalKafka:
        try:
            return own.start(brokers)
        except BrokerFailed as error:
            kafkas.failed(error)

    yield start
    own.close()
