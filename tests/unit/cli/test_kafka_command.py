"""`tocsin kafka`: what it tells people to type."""

from pathlib import Path

import pytest

from tests.unit.cli.conftest import tocsin
from tocsin.broker import LocalKafka


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that starts without one."""
    monkeypatch.setattr(LocalKafka, "start", lambda *_: None)
    monkeypatch.setattr(LocalKafka, "bootstrap", "127.0.0.1:9092")


@pytest.mark.usefixtures("started")
def test_a_detached_broker_is_stopped_by_what_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    usual = tocsin("kafka", "up", "--detach").out.splitlines()[-1]
    assert usual.endswith("; `tocsin kafka down` stops it")
    for named, shown in (("k3", "k3"), ("my folder", "'my folder'")):
        other = tocsin("kafka", "up", "--data", named, "--detach").out.splitlines()[-1]
        assert other.endswith(f"; `tocsin kafka down --data {shown}` stops it")
