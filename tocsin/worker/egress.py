"""The egress guard: which addresses a job's request may reach.

A scheduler that sends requests for its users is a way into its own network: to the metadata service of the cloud, to
databases that trust their neighbours, to itself. So a host is resolved once, every address it has is checked, the
connection goes to a checked address, and redirects are never followed. What is refused in one spelling is refused in
all: decimal, octal, hexadecimal and short IPv4, IPv4 inside IPv6 (mapped, compatible, 6to4, NAT64), with a zone, with a
trailing dot.
"""

import ipaddress
import re
import socket
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

IPAddress = ipaddress.IPv4Address | ipaddress.IPv6Address
IPNetwork = ipaddress.IPv4Network | ipaddress.IPv6Network

LOOPBACK: Final = "a loopback address"

# What an address is, most telling name first. Everything that is not here is a public address.
_REFUSED: Final[tuple[tuple[IPNetwork, str], ...]] = tuple(
    (ipaddress.ip_network(network), name)
    for network, name in (
        ("169.254.169.254/32", "a cloud metadata address"),
        ("169.254.170.2/32", "a cloud metadata address"),
        ("100.100.100.200/32", "a cloud metadata address"),
        (
            "168.63.129.16/32",
            "a cloud metadata address",
        ),  # public by number, yet the host of every Azure machine
        ("192.0.0.192/32", "a cloud metadata address"),
        ("fd00:ec2::254/128", "a cloud metadata address"),
        ("fd20:ce::254/128", "a cloud metadata address"),
        ("0.0.0.0/8", "an unspecified address"),  # Linux connects 0.0.0.0 to the machine itself
        ("10.0.0.0/8", "a private address"),
        ("100.64.0.0/10", "a shared (carrier) address"),
        ("127.0.0.0/8", LOOPBACK),
        ("169.254.0.0/16", "a link-local address"),
        ("172.16.0.0/12", "a private address"),
        ("192.0.0.0/24", "a reserved address"),
        ("192.0.2.0/24", "a documentation address"),
        ("192.88.99.0/24", "a relay address"),
        ("192.168.0.0/16", "a private address"),
        ("198.18.0.0/15", "a benchmark address"),
        ("198.51.100.0/24", "a documentation address"),
        ("203.0.113.0/24", "a documentation address"),
        ("224.0.0.0/4", "a multicast address"),
        ("255.255.255.255/32", "the broadcast address"),
        ("240.0.0.0/4", "a reserved address"),
        ("::/128", "an unspecified address"),
        ("::1/128", LOOPBACK),
        ("64:ff9b:1::/48", "a private address"),  # NAT64 of a local network: what it embeds is not known
        ("100::/64", "a discard address"),
        ("2001::/23", "a reserved address"),  # Teredo, ORCHID and others: no servers live there
        ("2001:db8::/32", "a documentation address"),
        ("3fff::/20", "a documentation address"),
        ("5f00::/16", "a reserved address"),
        ("fc00::/7", "a private address"),
        ("fe80::/10", "a link-local address"),
        ("fec0::/10", "a private address"),
        ("ff00::/8", "a multicast address"),
    )
)

# IPv6 ranges that carry an IPv4 address: how far it is from the right.
_EMBEDDING: Final[tuple[tuple[ipaddress.IPv6Network, int], ...]] = (
    (ipaddress.IPv6Network("::ffff:0:0/96"), 0),  # mapped
    (ipaddress.IPv6Network("::ffff:0:0:0/96"), 0),  # translated (SIIT)
    (ipaddress.IPv6Network("::/96"), 0),  # compatible, deprecated
    (ipaddress.IPv6Network("64:ff9b::/96"), 0),  # NAT64
    (ipaddress.IPv6Network("2002::/16"), 80),  # 6to4
)

_LOOPBACK: Final = (ipaddress.ip_network("127.0.0.0/8"), ipaddress.ip_network("::1/128"))
_NUMERIC: Final = re.compile(r"[0-9a-fx.]+", re.IGNORECASE)
_HOST: Final = re.compile(r"(\*\.)?[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*\.?")


class EgressBlocked(PermissionError):
    """A request was not sent, because its host has an address that the worker's egress guard refuses.

    Start the worker with the option that the message names if the job is meant to reach it.
    """

    def __init__(self, host: str, address: str, what: str) -> None:
        shown = address if host == address else f"{host} ({address})"
        super().__init__(f"blocked: {shown} is {what}: {_remedy(host, address, what)}")
        self.host = host
        self.address = address
        self.what = what


@dataclass(frozen=True, slots=True, kw_only=True)
class EgressPolicy:
    """What may be reached besides public addresses."""

    allow: tuple[str, ...] = ()
    """Addresses, ranges (`10.1.0.0/16`) and host names (`hooks.internal`, `*.svc.internal`). A host name allows whatever
    that host resolves to."""
    allow_loopback: bool = False
    """For the all-in-one node, whose jobs talk to the machine that it runs on."""


def egress_problems(policy: EgressPolicy) -> list[str]:
    return [
        f"egress allow list: {entry!r} is neither an address, nor a range such as 10.1.0.0/16, nor a host name"
        for entry in policy.allow
        if _network(entry) is None and not _HOST.fullmatch(entry)
    ]


class EgressGuard:
    """The policy, ready to be asked."""

    def __init__(self, policy: EgressPolicy) -> None:
        networks = [network for entry in policy.allow if (network := _network(entry)) is not None]
        if policy.allow_loopback:
            networks += _LOOPBACK
        hosts = [entry.lower().rstrip(".") for entry in policy.allow if _network(entry) is None]
        self._networks = tuple(networks)
        self._hosts = frozenset(host for host in hosts if not host.startswith("*."))
        self._suffixes = tuple(host[1:] for host in hosts if host.startswith("*."))
        # Every start asks, mostly for a few hosts again and again.
        self._refusal = lru_cache(maxsize=4_096)(self._find_refusal)

    def literal(self, host: str) -> str | None:
        """The address that `host` spells, canonical, or None if it is a name to be resolved.

        Raises EgressBlocked if it may not be reached, or if it looks like an address and is none.
        """
        address = parse_address(host)
        if address is not None:
            self.check(host, str(address))
            return str(address)
        bare = host.rstrip(".")
        if ":" in bare or not bare or bare.replace(".", "").isdigit():
            # A client would take it for an address, too, and read it in its own way.
            raise EgressBlocked(host, host, "not a well-formed address")
        name = bare.lower()
        if (name == "localhost" or name.endswith(".localhost")) and not self._allows_host(host):
            self.check(host, "127.0.0.1")  # by RFC 6761, whatever a name server may say
        return None

    def check_all(self, host: str, addresses: Iterable[str]) -> None:
        """Raises EgressBlocked if one of the addresses that `host` resolved to may not be reached."""
        if self._allows_host(host):
            return
        for address in addresses:
            self.check(host, address)

    def check(self, host: str, address: str) -> None:
        """Raises EgressBlocked."""
        what = self._refusal(address)
        if what is not None:
            raise EgressBlocked(host, address, what)

    def _find_refusal(self, address: str) -> str | None:
        parsed = parse_address(address)
        if parsed is None:
            return "not a well-formed address"
        real = _carried(parsed) or parsed
        if any(parsed in network or real in network for network in self._networks):
            return None
        return next((what for network, what in _REFUSED if real in network), None)

    def _allows_host(self, host: str) -> bool:
        name = host.lower().rstrip(".")
        return name in self._hosts or any(name.endswith(suffix) for suffix in self._suffixes)


def _remedy(host: str, address: str, what: str) -> str:
    """What the operator of the worker can do, in the words of its command line; or else the job's owner."""
    parsed = parse_address(address)
    if parsed is None:
        return "correct the job's URL"
    if what == LOOPBACK:
        return "start the worker with --allow-loopback"
    option = f"--allow-network {ipaddress.ip_network(str(parsed).partition('%')[0])}"
    return f"start the worker with {option}" + (
        f" or --allow-host {host}" if parse_address(host) is None else ""
    )


def parse_address(text: str) -> IPAddress | None:
    """The address that `text` spells in any form that a socket library accepts; None for everything else."""
    bare = text.strip("[]").partition("%")[0].rstrip(".")
    try:
        return ipaddress.ip_address(bare)
    except ValueError:
        pass
    # inet_aton reads 2130706433, 0x7f.1, 0177.0.0.1 and 127.1 as connect() would.
    if not _NUMERIC.fullmatch(bare):
        return None
    try:
        return ipaddress.IPv4Address(socket.inet_aton(bare))
    except OSError:
        return None


def _carried(address: IPAddress) -> ipaddress.IPv4Address | None:
    """The IPv4 address that an IPv6 address stands for, if any: that is where a packet ends up."""
    if isinstance(address, ipaddress.IPv6Address):
        for network, shift in _EMBEDDING:
            # The unspecified and the loopback address lie in the compatible range without carrying anything.
            if address in network and int(address) > 1:
                return ipaddress.IPv4Address(int(address) >> shift & 0xFFFF_FFFF)
    return None


def _network(entry: str) -> IPNetwork | None:
    try:
        return ipaddress.ip_network(entry, strict=False)
    except ValueError:
        return None
