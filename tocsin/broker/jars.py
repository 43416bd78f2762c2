"""The broker's jars: fetched once into a cache of the user's, each held against its locked hash.

A jar is in the cache under its name only after its hash was checked, so a fetch that was killed leaves nothing that could
be believed, and the next one goes on with what is missing. Two processes that fetch at once wait for each other.
"""

import errno
import fcntl
import hashlib
import logging
import os
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tocsin.broker.failures import BrokerFailed
from tocsin.broker.lock import KAFKA, Jar, locked_jars
from tocsin.clock import SystemClock

CACHE: Final = "TOCSIN_KAFKA_CACHE"
MIRROR: Final = "TOCSIN_MAVEN_REPOSITORY"
CONNECTIONS: Final = 6  # most jars are small: what takes time is the way there and back
TIMEOUT_S: Final = 30  # of a connection, and between two pieces of a file
TELL_EVERY_S: Final = 2.0


def cache_folder() -> Path:
    """Where the jars are kept: $TOCSIN_KAFKA_CACHE, else `tocsin` in the user's cache."""
    named = os.environ.get(CACHE)
    if named:
        return Path(named).expanduser().absolute()
    users = os.environ.get("XDG_CACHE_HOME")
    try:
        return (Path(users) if users else Path.home() / ".cache") / "tocsin"
    except RuntimeError:  # a user without a home, as in some containers
        raise BrokerFailed(
            f"no folder for the jars of Kafka: this user has no home; name one by {CACHE}"
        ) from None


def fetch_jars(tell: Callable[[str], None]) -> list[Path]:
    """All jars of the broker, complete and as locked; fetches what is missing."""
    folder = cache_folder() / f"kafka-{KAFKA}"
    if not _missing(folder):
        return _paths(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with _alone(folder, tell):
            missing = _missing(folder)  # another process may have fetched them meanwhile
            if missing:
                _fetch(missing, folder, tell)
    except OSError as error:
        raise BrokerFailed(_cannot_keep(folder, error)) from None
    return _paths(folder)


def _paths(folder: Path) -> list[Path]:
    return [folder / jar.file_name for jar in locked_jars()]


def _missing(folder: Path) -> list[Jar]:
    return [jar for jar in locked_jars() if not _is_whole(folder / jar.file_name, jar)]


def _is_whole(path: Path, jar: Jar) -> bool:
    try:
        return path.stat().st_size == jar.size
    except OSError:
        return False


@contextmanager
def _alone(folder: Path, tell: Callable[[str], None]) -> Iterator[None]:
    """Holds the lock of the cache; the system lets go of it if the process is killed."""
    with (folder / ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            tell(f"another process is fetching Kafka's jars into {folder}: waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _fetch(missing: list[Jar], folder: Path, tell: Callable[[str], None]) -> None:
    progress = _Progress(missing, tell)
    for stale in folder.glob(".fetch-*"):  # of a process that was killed: we hold the lock
        shutil.rmtree(stale, ignore_errors=True)
    staging = Path(tempfile.mkdtemp(prefix=".fetch-", dir=folder))
    try:
        source = _Source(staging, progress)
        progress.begin()
        with ThreadPoolExecutor(CONNECTIONS) as pool:
            tasks = [pool.submit(source.get, jar, folder) for jar in missing]
            try:
                done, _ = wait(tasks, return_when=FIRST_EXCEPTION)
            finally:
                progress.over = True
                pool.shutdown(wait=False, cancel_futures=True)
        for task in done:
            task.result()
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    progress.end(folder)


class _Source:
    """One jar at a time: from the Maven repository of this user if it is there, else over the network."""

    def __init__(self, staging: Path, progress: "_Progress") -> None:
        try:
            from jgo.config import GlobalSettings
            from jgo.constants import MAVEN_CENTRAL_URL
            from jgo.maven import MavenContext, PythonResolver
        except ModuleNotFoundError as error:
            raise BrokerFailed(
                f"to fetch Kafka's jars the package {(error.name or 'jgo').partition('.')[0]} is needed: pip install "
                "'tocsin[broker]' (in a clone: make broker)"
            ) from None
        # It would repeat on the terminal what we say ourselves.
        logging.getLogger("jgo").setLevel(logging.CRITICAL)
        settings = GlobalSettings.load()
        mirror = os.environ.get(MIRROR, "").rstrip("/")
        self._url = mirror or MAVEN_CENTRAL_URL
        repositories = (
            {"mirror": mirror} if mirror else {"central": MAVEN_CENTRAL_URL, **settings.repositories}
        )
        self._users = settings.repo_cache
        self._context = MavenContext(
            resolver=PythonResolver(progress_callback=progress.of_file),
            repo_cache=staging,
            remote_repos=repositories,
            timeout=TIMEOUT_S,
        )
        self._progress = progress

    def get(self, jar: Jar, folder: Path) -> None:
        theirs = self._users / jar.path_in_repository
        if _is_whole(theirs, jar):
            copy = self._context.repo_cache / jar.file_name
            shutil.copyfile(theirs, copy)
            if _digest(copy) == jar.sha256:
                self._keep(copy, jar, folder)
                return
        self._keep(self._download(jar), jar, folder)

    def _download(self, jar: Jar) -> Path:
        import requests

        artifact = self._context.project(jar.group, jar.artifact).at_version(jar.version).artifact()
        try:
            path = self._context.resolver.download(artifact)
        except requests.RequestException as error:
            raise BrokerFailed(self._no_network(_cause(error))) from None
        except RuntimeError as error:  # what jgo raises if no repository has it
            raise BrokerFailed(self._no_network(str(error))) from None
        assert path is not None
        digest = _digest(path)
        if digest != jar.sha256:
            raise BrokerFailed(
                f"{jar.file_name} from {self._url} is not what was tested: its SHA-256 is {digest}, and {jar.sha256} was "
                f"expected. It was thrown away. If a mirror or a proxy changes files, name another repository by {MIRROR}"
            )
        return path

    def _keep(self, path: Path, jar: Jar, folder: Path) -> None:
        os.replace(path, folder / jar.file_name)  # noqa: PTH105 - as everywhere: what replaces, atomically
        self._progress.kept(jar)

    def _no_network(self, cause: str) -> str:
        return (
            f"Kafka's jars cannot be fetched from {self._url}: {cause}. {self._progress.state()}. What to do: look at the "
            "network or the proxy (HTTPS_PROXY) and run it again, it goes on from here; or name another Maven repository "
            f"by {MIRROR}; or use a Kafka that runs already: --kafka HOST:PORT"
        )


class _Progress:
    """Says every two seconds how far the fetch is; told by several threads."""

    def __init__(self, missing: list[Jar], tell: Callable[[str], None]) -> None:
        self._tell = tell
        self._lock = threading.Lock()
        self._jars = len(missing)
        self._bytes = sum(jar.size for jar in missing)
        self._kept = 0
        self._got = 0
        self.over = False
        """Whether what is still under way need not go on: one of the others failed, or Ctrl-C was pressed."""
        self._clock = SystemClock()
        self._told_s = self._clock.monotonic_s()

    def begin(self) -> None:
        self._tell(f"fetching Apache Kafka {KAFKA}: {self._jars} jars, {_mb(self._bytes)} MB, once")

    @contextmanager
    def of_file(self, _: str, __: int) -> Iterator[Callable[[int], None]]:
        yield self._received

    def _received(self, count: int) -> None:
        if self.over:
            raise BrokerFailed("the fetch was given up")
        with self._lock:
            self._got += count
            now_s = self._clock.monotonic_s()
            if now_s - self._told_s >= TELL_EVERY_S:
                self._told_s = now_s
                self._tell(f"  {self._kept} of {self._jars} jars, {_mb(self._got)} of {_mb(self._bytes)} MB")

    def kept(self, _: Jar) -> None:
        with self._lock:
            self._kept += 1

    def state(self) -> str:
        with self._lock:
            return f"{self._kept} of {self._jars} missing jars are there now"

    def end(self, folder: Path) -> None:
        self._tell(f"  {self._jars} jars are in {folder}")


def _mb(count: int) -> str:
    return f"{count / 1_000_000:.0f}"


def _cause(error: BaseException) -> str:
    """The innermost of what requests and urllib3 wrap around what happened."""
    inner: BaseException | None = error
    while inner is not None:
        error = inner
        held = (getattr(error, "reason", None), *error.args)
        inner = next((each for each in held if isinstance(each, BaseException)), None)
    return str(error)[:300] or type(error).__name__


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _cannot_keep(folder: Path, error: OSError) -> str:
    size = _mb(sum(jar.size for jar in locked_jars()))
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"no space for Kafka's jars in {folder} ({size} MB): make room there, or name another folder by {CACHE}"
    return f"Kafka's jars cannot be kept in {folder}: {error}. Name another folder by {CACHE}"
