"""Free ports for a broker: outside the range from which the system takes the ports of outgoing connections.

While a broker is down, its clients go on connecting. On loopback, with a port of that range, one of them can be given the
very port that it connects to: it then talks to itself, and the broker finds its port taken.
"""

import socket
from pathlib import Path
from typing import Final

from tocsin.broker.failures import BrokerFailed
from tocsin.clock import new_id

HOST: Final = "127.0.0.1"
LOWEST: Final = 10_240
OUTGOING_FROM: Final = 32_768  # Linux; macOS begins at 49,152
RANGE_FILE: Final = Path("/proc/sys/net/ipv4/ip_local_port_range")
TRIES_MAX: Final = 1_000


def free_ports(count: int) -> list[int]:
    """`count` different ports on loopback that nobody listens at now."""
    highest = max(LOWEST + 1_000, _outgoing_from())
    found: set[int] = set()
    for _ in range(TRIES_MAX):
        if len(found) == count:
            return sorted(found)
        port = LOWEST + int(new_id(), 16) % (highest - LOWEST)
        if is_free(port):
            found.add(port)
    raise BrokerFailed(
        f"no {count} free ports between {LOWEST} and {highest} on {HOST} in {TRIES_MAX} tries: name one by --port"
    )


def is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the broker does
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


def _outgoing_from() -> int:
    try:
        return int(RANGE_FILE.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return OUTGOING_FROM
