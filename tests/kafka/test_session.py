"""What the worker's rule W8 rests on: an accepted plain offset commit restarts a member's session at the broker."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Final

import pytest

from tests.kafka.member import SESSION_MS
from tests.kafka.roles import ROOT
from tests.kafka.waiting import until
from tocsin.clock import SystemClock, new_id
from tocsin.log.kafka import KafkaConfig, KafkaLog
from tocsin.schemas.topics import TopicSpec

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]

COMMITS_FOR_S: Final = SESSION_MS / 1000 - 1.0
"""The member's own timer, which counts heartbeats alone, would have it join again after a whole session."""


@contextmanager
def frozen_member(bootstrap: str, group: str, topic: str, commits_for_s: float) -> Iterator[float]:
    """A member that has committed for so long and was then frozen; gives the instant (steady) when it had joined."""
    clock = SystemClock()
    command = [sys.executable, "-m", "tests.kafka.member", bootstrap, group, topic, str(commits_for_s)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    assert process.stdout is not None
    with process.stdout as said:
        try:
            assert "joined\n" == said.readline()
            joined_s = clock.monotonic_s()
            assert "done\n" == said.readline()
            process.send_signal(19)
            yield joined_s
        finally:
            process.kill()
            process.wait()


def test_a_member_that_sends_no_heartbeat_is_held_for_a_session_after_its_last_commit(
    kafka_bootstrap: str,
) -> None:
    clock = SystemClock()
    log = KafkaLog.open(KafkaConfig(bootstrap=kafka_bootstrap), clock)
    topic = f"t.{new_id()[:10]}.session"
    log.create_topics([TopicSpec(name=topic, partitions=1)])
    group = f"{topic}.commits"
    with ExitStack() as stack:
        joined_s = stack.enter_context(frozen_member(kafka_bootstrap, group, topic, COMMITS_FOR_S))
        frozen_s = clock.monotonic_s()
        until(lambda: not log.members(group), "the broker has given the frozen member up")
        gone_s = clock.monotonic_s()
    log.close()
    # Without its commits it would have been given up one session after it joined.
    session_s = SESSION_MS / 1000
    assert gone_s - joined_s > session_s + COMMITS_FOR_S / 2
    assert gone_s - frozen_s > session_s / 2
