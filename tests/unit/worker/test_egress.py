"""K44: what the egress guard refuses, in every spelling, and what it lets through."""

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tocsin.worker.egress import EgressBlocked, EgressGuard, EgressPolicy, egress_problems

CARRYING = (ipaddress.IPv6Network("2002::/16"), ipaddress.IPv6Network("::ffff:0:0/96"))
STRICT = EgressGuard(EgressPolicy())

LOOPBACK = [
    "127.0.0.1",
    "127.1",
    "127.0.1",
    "2130706433",
    "0x7f.1",
    "0x7f000001",
    "0X7F000001",
    "0177.0.0.1",
    "017700000001",
    "127.0.0.1.",
    "127.255.255.254",
    "::1",
    "[::1]",
    "0:0:0:0:0:0:0:1",
    "::1%lo",
    "::ffff:127.0.0.1",
    "::ffff:7f00:1",
    "::127.0.0.1",
    "64:ff9b::7f00:1",
    "2002:7f00:1::",
    "::ffff:0:127.0.0.1",
]
METADATA = [
    "169.254.169.254",
    "::ffff:169.254.169.254",
    "[::ffff:a9fe:a9fe]",
    "2852039166",
    "0xa9fea9fe",
    "0251.0376.0251.0376",
    "169.254.43518",
    "64:ff9b::a9fe:a9fe",
    "2002:a9fe:a9fe::1",
    "fd00:ec2::254",
    "168.63.129.16",
    "100.100.100.200",
]
PRIVATE = [
    "10.0.0.1",
    "10.1",
    "172.16.0.1",
    "172.31.255.255",
    "192.168.1.1",
    "0xc0a80101",
    "fc00::1",
    "fd12:3456:789a::1",
    "fec0::1",
    "64:ff9b:1::a00:1",
    "::ffff:10.0.0.1",
]
OTHERS = [
    ("0.0.0.0", "unspecified"),
    ("0", "unspecified"),
    ("0.1.2.3", "unspecified"),
    ("::", "unspecified"),
    ("169.254.1.1", "link-local"),
    ("fe80::1", "link-local"),
    ("fe80::1%eth0", "link-local"),
    ("224.0.0.1", "multicast"),
    ("239.255.255.250", "multicast"),
    ("ff02::1", "multicast"),
    ("255.255.255.255", "broadcast"),
    ("240.0.0.1", "reserved"),
    ("100.64.0.1", "shared"),
    ("192.0.2.1", "documentation"),
    ("198.18.0.1", "benchmark"),
    ("2001:db8::1", "documentation"),
    ("2001:0:7f00:1::", "reserved"),
]


@pytest.mark.parametrize(
    ("host", "what"),
    [(h, "loopback") for h in LOOPBACK]
    + [(h, "metadata") for h in METADATA]
    + [(h, "private") for h in PRIVATE]
    + OTHERS,
)
def test_an_address_inside_is_refused_in_every_spelling(host: str, what: str) -> None:
    with pytest.raises(EgressBlocked, match=what):
        STRICT.literal(host)


@pytest.mark.parametrize(
    ("host", "canonical"),
    [
        ("8.8.8.8", "8.8.8.8"),
        ("134744072", "8.8.8.8"),
        ("172.32.0.1", "172.32.0.1"),
        ("2606:4700::1111", "2606:4700::1111"),
        ("64:ff9b::808:808", "64:ff9b::808:808"),
    ],
)
def test_a_public_address_is_allowed_and_made_canonical(host: str, canonical: str) -> None:
    assert canonical == STRICT.literal(host)


@pytest.mark.parametrize("host", ["localhost", "localhost.", "LOCALHOST", "db.localhost", "db.localhost."])
def test_localhost_is_a_loopback_address_without_being_looked_up(host: str) -> None:
    with pytest.raises(EgressBlocked, match="loopback"):
        STRICT.literal(host)
    assert EgressGuard(EgressPolicy(allow_loopback=True)).literal(host) is None
    assert EgressGuard(EgressPolicy(allow=("localhost", "*.localhost"))).literal(host) is None


@pytest.mark.parametrize("host", ["example.com", "localhost.example", "0x7f.example", "cafe.be", "a1"])
def test_a_name_is_left_to_be_resolved(host: str) -> None:
    assert STRICT.literal(host) is None


@pytest.mark.parametrize("host", ["4294967296", "1.2.3.4.5", "999.1.1.1", "127.0.0.1:80:", ".", "1..2"])
def test_what_looks_like_an_address_and_is_none_is_refused(host: str) -> None:
    with pytest.raises(EgressBlocked, match="well-formed"):
        STRICT.literal(host)


def test_one_bad_address_among_those_of_a_name_is_enough() -> None:
    STRICT.check_all("good.example", ["93.184.216.34", "2606:4700::1111"])
    with pytest.raises(EgressBlocked, match=r"evil\.example \(10\.0\.0\.7\) is a private address"):
        STRICT.check_all("evil.example", ["93.184.216.34", "10.0.0.7"])


@pytest.mark.parametrize(
    ("host", "address", "option"),
    [
        ("10.1.2.3", "10.1.2.3", "--allow-network 10.1.2.3/32"),
        ("[fd00::7]", "fd00::7", "--allow-network fd00::7/128"),
        ("fe80::1%eth0", "fe80::1%eth0", "--allow-network fe80::1/128"),
        ("evil.example", "10.0.0.7", "--allow-network 10.0.0.7/32 or --allow-host evil.example"),
        ("localhost", "127.0.0.1", "--allow-loopback"),
        ("::ffff:127.0.0.1", "::ffff:127.0.0.1", "--allow-loopback"),
    ],
)
def test_the_refusal_names_the_option_that_allows_it(host: str, address: str, option: str) -> None:
    with pytest.raises(EgressBlocked) as refused:
        STRICT.check(host, address)
    assert str(refused.value).endswith(f": start the worker with {option}")


def test_no_option_allows_what_is_not_an_address() -> None:
    with pytest.raises(EgressBlocked) as refused:
        STRICT.literal("999.1.1.1")
    assert "blocked: 999.1.1.1 is not a well-formed address: correct the job's URL" == str(refused.value)


def test_ranges_addresses_and_hosts_can_be_allowed() -> None:
    guard = EgressGuard(
        EgressPolicy(allow=("10.1.0.0/16", "192.168.7.7", "hooks.internal", "*.svc.internal", "fd00::/8"))
    )
    assert "10.1.2.3" == guard.literal("10.1.2.3")
    assert "192.168.7.7" == guard.literal("192.168.7.7")
    assert "fd00::1" == guard.literal("fd00::1")
    assert "::ffff:10.1.2.3" == guard.literal("::ffff:10.1.2.3").replace("a01:203", "10.1.2.3")  # type: ignore[union-attr]
    guard.check_all("Hooks.Internal.", ["10.9.9.9"])
    guard.check_all("a.b.svc.internal", ["10.9.9.9"])
    for host in ("svc.internal", "xhooks.internal", "hooks.internal.evil.example"):
        with pytest.raises(EgressBlocked):
            guard.check_all(host, ["10.9.9.9"])
    for address in ("10.2.0.1", "192.168.7.8"):
        with pytest.raises(EgressBlocked):
            guard.literal(address)


def test_loopback_can_be_allowed_without_the_rest() -> None:
    guard = EgressGuard(EgressPolicy(allow_loopback=True))
    for host in LOOPBACK:
        if not host.startswith(("64:", "2002:", "::ffff:0:")):
            assert guard.literal(host)
    for host in ("10.0.0.1", "169.254.169.254", "0.0.0.0"):
        with pytest.raises(EgressBlocked):
            guard.literal(host)


@given(st.ip_addresses())
def test_what_the_standard_library_knows_to_be_no_public_address_is_refused(
    address: ipaddress.IPv4Address | ipaddress.IPv6Address,
) -> None:
    # A second opinion. It calls all of 6to4 and all of the mapped range private; we look at what they carry.
    if address.is_global or any(address in network for network in CARRYING):
        return
    with pytest.raises(EgressBlocked):
        STRICT.literal(str(address))


def test_an_allow_list_is_checked() -> None:
    policy = EgressPolicy(
        allow=("10.0.0.0/8", "hooks.internal", "*.svc.internal", "http://x/", "", "10.0.0.0/40")
    )
    assert 3 == len(egress_problems(policy))
