"""docker-compose.yml and the Dockerfile, held to the rules of their formats; no engine is needed."""

import json
import re
import shlex
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parent.parent.parent
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]

# What the Compose specification knows, as far as one needs it. An unknown key is an error there too.
TOP_LEVEL = {"configs", "name", "networks", "secrets", "services", "volumes"}
SERVICE = set(
    """build cap_add cap_drop command configs container_name cpus depends_on deploy entrypoint env_file environment
    expose extra_hosts healthcheck hostname image init labels logging mem_limit networks pids_limit ports profiles
    read_only restart secrets security_opt stop_grace_period stop_signal tmpfs ulimits user volumes working_dir""".split()
)
HEALTHCHECK = {"disable", "interval", "retries", "start_interval", "start_period", "test", "timeout"}
DURATION = re.compile(r"(?:\d+h)?(?:\d+m)?(?:\d+s)?(?:\d+ms)?")
DRAIN_S = 30  # what a worker lets its runs have when it is told to stop


def _instructions() -> list[tuple[str, str]]:
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    text = re.sub(r"^#.*\n", "", text, flags=re.MULTILINE).replace("\\\n", " ")
    return [
        (word, rest.strip()) for line in text.splitlines() if line for word, _, rest in [line.partition(" ")]
    ]


def _seconds(duration: str) -> int:
    assert duration
    assert DURATION.fullmatch(duration), duration
    units = {"h": 3600, "m": 60, "s": 1}
    return sum(int(n) * units[unit] for n, unit in re.findall(r"(\d+)([hms])(?![a-z])", duration))


def test_each_key_is_one_that_compose_knows() -> None:
    assert COMPOSE.keys() <= TOP_LEVEL
    for name, service in SERVICES.items():
        assert re.fullmatch(r"[a-zA-Z0-9._-]+", name)
        assert service.keys() <= SERVICE
        assert {"image", "build"} & service.keys()
        assert service.get("restart", "no") in {"no", "always", "on-failure", "unless-stopped"}


def test_each_port_is_published_to_this_machine_alone() -> None:
    ports = [port for service in SERVICES.values() for port in service.get("ports", [])]
    assert ports
    for port in ports:
        assert re.fullmatch(r"127\.0\.0\.1:\d+:\d+", port), port


def test_each_volume_that_is_used_is_declared() -> None:
    used = {
        volume.partition(":")[0] for service in SERVICES.values() for volume in service.get("volumes", [])
    }
    assert used == COMPOSE["volumes"].keys()


def test_a_service_is_healthy_when_it_says_that_it_is_ready() -> None:
    for service in SERVICES.values():
        check = service["healthcheck"]
        assert check.keys() <= HEALTHCHECK
        assert check["test"][0] == "CMD"
        (port,) = re.findall(r"http://127\.0\.0\.1:(\d+)/readyz", check["test"][-1])
        assert port in {published.rpartition(":")[2] for published in service["ports"]}
        assert 0 < _seconds(check["timeout"]) <= _seconds(check["interval"])
        assert _seconds(check["start_period"]) > _seconds(check["start_interval"])
        compile(check["test"][-1], "healthcheck", "exec")


def test_a_node_that_listens_beyond_loopback_does_not_start_without_a_key() -> None:
    for service in SERVICES.values():
        assert "0.0.0.0" in service["command"]
        assert service["environment"]["TOCSIN_API_KEY"].startswith("${TOCSIN_API_KEY:?")


def test_a_container_that_is_told_to_stop_may_drain() -> None:
    for service in SERVICES.values():
        assert _seconds(service["stop_grace_period"]) > DRAIN_S


def test_what_the_node_writes_to_outlives_the_container() -> None:
    (service,) = SERVICES.values()
    command: list[str] = service["command"]
    data = command[command.index("--data") + 1]
    assert [f"data:{data}"] == service["volumes"]
    assert ("VOLUME", data) in _instructions()


def test_the_image_runs_by_default_what_compose_runs() -> None:
    instructions = dict(_instructions())
    assert json.loads(instructions["ENTRYPOINT"]) == ["tocsin"]
    assert json.loads(instructions["CMD"]) == SERVICES["tocsin"]["command"]
    assert SERVICES["tocsin"]["ports"] == [f"127.0.0.1:{instructions['EXPOSE']}:{instructions['EXPOSE']}"]


def test_the_image_does_not_run_as_root() -> None:
    words = [word for word, _ in _instructions()]
    assert words.index("USER") > max(i for i, word in enumerate(words) if word == "RUN")
    assert dict(_instructions())["USER"] != "root"


def test_the_image_installs_only_what_is_locked() -> None:
    runs = [rest for word, rest in _instructions() if word == "RUN"]
    installs = [step for run in runs for step in run.split("&&") if "pip install" in step]
    assert installs
    for step in installs:
        assert {"--require-hashes", "--no-deps"} & set(shlex.split(step)), step


def test_what_the_image_copies_exists_and_is_sent_to_the_engine() -> None:
    sent = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    assert "*" in sent
    patterns = [line.removeprefix("!").removesuffix("/*.txt") for line in sent if line.startswith("!")]
    for word, rest in _instructions():
        if word == "COPY" and not rest.startswith("--from="):
            for source in shlex.split(rest)[:-1]:
                assert (ROOT / source).exists(), source
                assert source.partition("/")[0] in patterns, f"{source} is not in .dockerignore's list"
