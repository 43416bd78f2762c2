"""A worker's settings are checked all at once."""

import pytest

from tocsin.worker.config import InvalidWorkerConfig, WorkerConfig
from tocsin.worker.egress import EgressPolicy


def test_the_defaults_are_valid() -> None:
    config = WorkerConfig(worker="w")
    assert (("default",), 256, 30.0) == (config.queues, config.concurrency, config.drain_s)


def test_every_problem_is_named() -> None:
    with pytest.raises(InvalidWorkerConfig) as caught:
        WorkerConfig(
            worker="",
            queues=("default", "a/b", "default"),
            concurrency=0,
            drain_s=-1,
            hold_bytes_max=1,
            per_target_max=0,
            connect_timeout_s=0,
            session_timeout_s=1,
            clock_offset_max_ms=0,
            egress=EgressPolicy(allow=("no host!",)),
        )
    text = str(caught.value)
    for name in (
        "worker must", "'a/b'", "'default' is there twice", "concurrency", "drain_s", "hold_bytes_max", "per_target_max",
        "connect_timeout_s", "session_timeout_s", "clock_offset_max_ms", "'no host!'",
    ):  # fmt: skip
        assert name in text
    assert 11 == len(caught.value.problems)


def test_a_worker_without_queues_has_nothing_to_do() -> None:
    with pytest.raises(InvalidWorkerConfig, match="at least one queue"):
        WorkerConfig(worker="w", queues=())


def test_a_core_gets_the_settings_of_its_worker() -> None:
    core = WorkerConfig(worker="w", queues=("a", "b"), drain_s=5, per_target_max=7).core("b")
    assert ("b", "w", 5, 7) == (core.queue, core.worker, core.drain_s, core.per_target_max)
