"""On Kafka, the same file and the same commands do the same as on one node."""

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from tests.kafka.cluster import Cluster
from tests.kafka.roles import ROOT
from tests.kafka.waiting import until

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(600)]

JOBS = ("tick", "every-five", "once", "moody", "doomed")


def tocsin(cluster: Cluster, *arguments: str) -> Any:
    """What a command prints as JSON."""
    command = [sys.executable, "-m", "tocsin.cli", *arguments, "--json"]
    environment = {**os.environ, "TOCSIN_URL": cluster["api"].url}
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment, check=False)
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return json.loads(done.stdout)


def test_hello_yaml_and_the_commands_of_the_readme_work_unchanged(cluster: Cluster) -> None:
    cluster.start(streams=2, workers=1)
    text = (ROOT / "examples" / "hello.yaml").read_text().replace("http://127.0.0.1:8790", cluster.sink.url)
    shown = cluster.directory / "hello.yaml"
    shown.write_text(text)
    tocsin(cluster, "jobs", "apply", "-f", str(shown))
    wanted = {f"default/{name}" for name in JOBS}
    cluster.until_requests(lambda requests: wanted <= {each.job for each in requests}, "each job has run")

    def runs(name: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = cluster.get(f"/v1/jobs/default/{name}/runs")["items"]
        return found

    def until_ended(name: str, status: str) -> None:
        until(lambda: [status] == [each["status"] for each in runs(name)], f"the run of {name} is {status}")

    for name, status, attempts in (
        ("once", "succeeded", 1),
        ("moody", "succeeded", 3),
        ("doomed", "failed", 3),
    ):
        until_ended(name, status)
        assert attempts == len(runs(name)[0]["attempts"])
    listed = tocsin(cluster, "jobs", "list")
    assert set(JOBS) == {each["id"] for each in listed["items"]}
    dead = tocsin(cluster, "dead-letters", "list")
    assert ["default/doomed"] == [each["job"] for each in dead["items"]]
    ticks = cluster.sink.of("default/tick")
    assert len(ticks) == len({each.run_id for each in ticks})
    assert all(each.received_ms >= each.due_ms for each in cluster.sink.requests)
