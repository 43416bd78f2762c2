"""docker-compose.yml and the Dockerfile, held to the rules of their formats and to our command line; no engine is needed."""

import http.server
import json
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from tocsin.broker.lock import KAFKA
from tocsin.broker.settings import Address, properties

ROOT = Path(__file__).parent.parent.parent
COMPOSE_FILE = ROOT / "docker-compose.yml"
COMPOSE: dict[str, Any] = yaml.safe_load(COMPOSE_FILE.read_text(encoding="utf-8"))
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
OURS = {name: service for name, service in SERVICES.items() if service["image"].startswith("tocsin:")}

DURATION = re.compile(r"(?:\d+h)?(?:\d+m)?(?:\d+s)?(?:\d+ms)?")
DRAIN_S = 30  # what a worker lets its runs have when it is told to stop
LIMIT_S = 60


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


# --- the rules of Compose ---------------------------------------------------------------------------------------------


def _by_the_specification(path: Path) -> subprocess.CompletedProcess[str]:
    """The JSON Schema of the Compose specification, which the package brings along."""
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec", str(path)]
    return subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)


def test_the_file_is_valid_by_the_compose_specification() -> None:
    done = _by_the_specification(COMPOSE_FILE)
    assert 0 == done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("restart: unless-stopped", "restrat: always"),
        ("retries: 3", "retires: 3"),
        ("replicas: 2", "replicas: [2]"),
    ],
)
def test_what_the_specification_does_not_know_would_be_seen(tmp_path: Path, right: str, wrong: str) -> None:
    text = COMPOSE_FILE.read_text(encoding="utf-8")
    assert right in text
    (tmp_path / "compose.yml").write_text(text.replace(right, wrong, 1))
    assert 0 != _by_the_specification(tmp_path / "compose.yml").returncode


def test_there_are_a_kafka_an_api_two_streams_and_two_workers() -> None:
    roles = [service["command"][0] for service in OURS.values() for _ in range(_replicas(service))]
    assert ["api", "streams", "streams", "worker", "worker"] == sorted(roles)
    assert f"apache/kafka:{KAFKA}" == SERVICES["kafka"]["image"], "the version that the tests run against"


def _replicas(service: dict[str, Any]) -> int:
    return int(service.get("deploy", {}).get("replicas", 1))


def test_each_port_is_published_to_this_machine_alone() -> None:
    ports = [port for service in SERVICES.values() for port in service.get("ports", [])]
    assert ports
    for port in ports:
        assert re.fullmatch(r"127\.0\.0\.1:\d+:\d+", port), port


def test_each_volume_that_is_used_is_declared_and_belongs_to_one_container() -> None:
    used = [
        volume.partition(":")[0]
        for service in SERVICES.values()
        for volume in service.get("volumes", [])
        for _ in range(_replicas(service))
    ]
    assert sorted(used) == sorted(COMPOSE["volumes"])


def test_a_service_that_waits_for_another_waits_for_one_that_says_when_it_is_healthy() -> None:
    for name, service in SERVICES.items():
        for other, how in service.get("depends_on", {}).items():
            assert other != name
            assert {"condition": "service_healthy"} == how
            assert "healthcheck" in SERVICES[other]


# --- the broker -------------------------------------------------------------------------------------------------------


def _broker_settings() -> dict[str, str]:
    """The environment, as the image reads it: KAFKA_A_B is a.b."""
    environment = SERVICES["kafka"]["environment"]
    return {
        name.removeprefix("KAFKA_").lower().replace("_", "."): value for name, value in environment.items()
    }


def test_each_setting_of_the_broker_is_one_that_a_broker_knows() -> None:
    text = properties(index=0, addresses=(Address(client=1, controller=2),), data=Path("/data"))
    known = {line.partition("=")[0] for line in text.splitlines()}
    assert _broker_settings().keys() - known == {"heap.opts"}


def test_the_broker_is_set_as_the_measurements_say_and_keeps_its_data() -> None:
    settings = _broker_settings()
    assert "3000" == settings["broker.session.timeout.ms"]
    assert "false" == settings["auto.create.topics.enable"]
    assert "broker,controller" == settings["process.roles"]
    assert [f"kafka:{settings['log.dirs']}"] == SERVICES["kafka"]["volumes"]
    for name, value in settings.items():
        if name.endswith((".replication.factor", ".min.isr")):
            assert "1" == value, f"{name}: there is one broker"


def test_every_role_finds_the_broker_where_it_says_that_it_is() -> None:
    (advertised,) = _broker_settings()["advertised.listeners"].split(",")
    address = advertised.partition("://")[2]
    assert address.partition(":")[0] == SERVICES["kafka"]["hostname"] == "kafka"
    for service in OURS.values():
        command = service["command"]
        assert address == command[command.index("--kafka") + 1]


# --- our command line -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", OURS)
def test_each_command_is_one_that_our_command_line_takes(name: str) -> None:
    from tocsin.cli.app import app

    command: list[str] = OURS[name]["command"]
    assert all(isinstance(word, str) for word in command)
    group = typer.main.get_command(app)
    root = group.make_context("tocsin", command.copy())
    role, found, rest = group.resolve_command(root, command.copy())  # type: ignore[attr-defined]
    context = found.make_context(role, rest, parent=root)
    assert [] == context.args
    assert "kafka:9092" == context.params["kafka"]


def test_a_streams_process_is_reached_by_the_name_that_it_tells() -> None:
    streams = {name: s["command"] for name, s in OURS.items() if s["command"][0] == "streams"}
    for name, command in streams.items():
        port = command[command.index("--listen") + 1].rpartition(":")[2]
        assert f"http://{name}:{port}" == command[command.index("--advertise") + 1]
        assert command[command.index("--data") + 1] == SERVICES[name]["volumes"][0].partition(":")[2]


def test_an_api_that_listens_beyond_loopback_does_not_start_without_a_key() -> None:
    api = OURS["api"]
    assert "0.0.0.0" in api["command"]
    assert api["environment"]["TOCSIN_API_KEY"].startswith("${TOCSIN_API_KEY:?")
    assert [f"127.0.0.1:8787:{api['command'][api['command'].index('--port') + 1]}"] == api["ports"]


def test_a_container_that_is_told_to_stop_may_drain() -> None:
    for service in OURS.values():
        assert _seconds(service["stop_grace_period"]) > DRAIN_S


# --- health checks ----------------------------------------------------------------------------------------------------


@contextmanager
def _answering(status: int) -> Iterator[int]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status if self.path == "/readyz" else 404)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_port
        server.shutdown()


def _healthy(check: list[str], port: int, ours: int) -> bool:
    """What the engine would find: the exit code of the command, with the port that something here listens at."""
    kind, *command = [word.replace(str(port), str(ours)) for word in check]
    assert "CMD" == kind
    command = [sys.executable if word == "python" else word for word in command]
    done = subprocess.run(command, capture_output=True, timeout=LIMIT_S, check=False)
    return done.returncode == 0


@pytest.mark.parametrize("name", SERVICES)
def test_a_health_check_has_its_time(name: str) -> None:
    check = SERVICES[name]["healthcheck"]
    assert 0 < _seconds(check["timeout"]) <= _seconds(check["interval"])
    assert _seconds(check["start_period"]) > _seconds(check["start_interval"])


@pytest.mark.parametrize("name", OURS)
def test_a_role_is_healthy_when_it_says_that_it_is_ready(name: str) -> None:
    command, check = OURS[name]["command"], OURS[name]["healthcheck"]["test"]
    option = "--port" if command[0] == "api" else "--listen"
    port = int(command[command.index(option) + 1].rpartition(":")[2])
    assert f"http://127.0.0.1:{port}/readyz" in check[-1]
    with _answering(200) as ready:
        assert _healthy(check, port, ready)
    with _answering(503) as not_ready:
        assert not _healthy(check, port, not_ready)
    assert not _healthy(check, port, not_ready), "nothing listens there any more"


def test_the_broker_is_healthy_when_it_listens() -> None:
    check = SERVICES["kafka"]["healthcheck"]["test"]
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        assert _healthy(check, 9092, port)
    assert not _healthy(check, 9092, port)


# --- the image --------------------------------------------------------------------------------------------------------


def test_the_image_runs_by_default_the_node_that_needs_no_kafka() -> None:
    instructions = dict(_instructions())
    assert ["tocsin"] == json.loads(instructions["ENTRYPOINT"])
    command = json.loads(instructions["CMD"])
    assert ["up", "--data", "/data", "--host", "0.0.0.0"] == command
    assert ("VOLUME", "/data") in _instructions()
    assert "8787" == instructions["EXPOSE"]


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


def _copied() -> list[str]:
    return [
        source
        for word, rest in _instructions()
        if word == "COPY" and not rest.startswith("--from=")
        for source in shlex.split(rest)[:-1]
    ]


def test_what_the_image_copies_exists_and_is_sent_to_the_engine() -> None:
    sent = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    assert "*" in sent
    patterns = [line.removeprefix("!").removesuffix("/*.txt") for line in sent if line.startswith("!")]
    for source in _copied():
        assert (ROOT / source).exists(), source
        assert source.partition("/")[0] in patterns, f"{source} is not in .dockerignore's list"


@pytest.mark.slow
def test_the_steps_of_the_image_make_a_tocsin_in_a_clean_folder(tmp_path: Path) -> None:
    """What the engine would do in the first stage, with another place for what it leaves, and this Python."""
    build, target = tmp_path / "build", tmp_path / "opt"
    bin_folder = tmp_path / "bin"
    bin_folder.mkdir()
    (bin_folder / "python").symlink_to(Path(sys.base_prefix) / "bin" / f"python3.{sys.version_info.minor}")
    build.mkdir()
    stages = 0
    for word, rest in _instructions():
        stages += word == "FROM"
        if stages == 1 and word == "COPY":
            *sources, destination = shlex.split(rest)
            for source in sources:
                _copy(ROOT / source, build / destination, as_folder=destination.endswith("/"))
        if stages == 1 and word == "RUN":
            step = rest.replace("/opt/tocsin", str(target))
            environment = {**os.environ, "PATH": f"{bin_folder}:{os.environ['PATH']}"}
            environment.pop("PYTHONPATH", None)
            done = subprocess.run(
                ["/bin/sh", "-ec", step],
                cwd=build,
                env=environment,
                capture_output=True,
                text=True,
                check=False,
            )
            assert 0 == done.returncode, f"{step}\n{done.stdout}\n{done.stderr}"
    assert stages == 2
    tocsin = target / "bin" / "tocsin"
    for arguments in (["--version"], ["streams", "--help"], ["worker", "--help"], ["api", "--help"]):
        done = subprocess.run([tocsin, *arguments], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert 0 == done.returncode, done.stderr
    assert not (target / "bin" / "pip").exists(), "nothing more is installed in the image"


def _copy(source: Path, destination: Path, *, as_folder: bool) -> None:
    """As COPY does: a folder's content, or a file into a folder."""
    if source.is_dir():
        shutil.copytree(source, destination, ignore=shutil.ignore_patterns("__pycache__"), dirs_exist_ok=True)
    else:
        folder = destination if as_folder else destination.parent
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, folder / source.name)
