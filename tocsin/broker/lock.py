"""Which jars make the broker: each with its size and hash, so that what is fetched is what was tested.

`python -m tocsin.broker.lock` writes the list anew after a change of KAFKA below (it needs jgo and the network).
"""

import hashlib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

KAFKA: Final = "4.4.0"
# What the broker itself depends on, as its own description says: 45 jars and 43 MB. With kafka-tools (Connect, a web
# server) it would be 92 and 56. log4j's binding, because the plain one cannot bound the size of a log.
COORDINATES: Final = (
    f"org.apache.kafka:kafka_2.13:{KAFKA}",
    "org.apache.logging.log4j:log4j-slf4j-impl:2.25.5!",  # "!": its own wishes for other versions do not count
)
LOCK_FILE: Final = Path(__file__).with_name("jars.lock")


@dataclass(frozen=True, slots=True, kw_only=True)
class Jar:
    group: str
    artifact: str
    version: str
    size: int
    sha256: str

    @property
    def file_name(self) -> str:
        return f"{self.artifact}-{self.version}.jar"

    @property
    def path_in_repository(self) -> str:
        return f"{self.group.replace('.', '/')}/{self.artifact}/{self.version}/{self.file_name}"


@cache
def locked_jars() -> tuple[Jar, ...]:
    jars = []
    for line in LOCK_FILE.read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            coordinate, size, sha256 = line.split()
            group, artifact, version = coordinate.split(":")
            jars.append(Jar(group=group, artifact=artifact, version=version, size=int(size), sha256=sha256))
    return tuple(jars)


def main() -> None:
    import jgo

    found = jgo.resolve("+".join(COORDINATES))
    lines = [
        "# What makes the broker: coordinate, bytes, SHA-256. Written by `python -m tocsin.broker.lock`."
    ]
    for each in sorted(found, key=lambda each: (each.groupId, each.artifactId)):
        content = each.resolve().read_bytes()
        digest = hashlib.sha256(content).hexdigest()
        lines.append(f"{each.groupId}:{each.artifactId}:{each.version} {len(content)} {digest}")
    LOCK_FILE.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
