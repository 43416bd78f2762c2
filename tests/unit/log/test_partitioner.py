"""The partitioner, held to the vectors of Kafka's own tests (UtilsTest.testMurmur2) and librdkafka's."""

import pytest

from tocsin.log.partitioner import murmur2, partition_for

JAVA_VECTORS = [
    (b"", 275646681),
    (b"21", -973932308),
    (b"foobar", -790332482),
    (b"a-little-bit-long-string", -985981536),
    (b"a-little-bit-longer-string", -1486304829),
    (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
    (b"abc", 479470107),
    (bytes([12, 42, 56, 24, 109, 111]), 274204207),
    (b"1", -1993445489),
    (b"12", 126087238),
    (b"123", -267702483),
    (b"1234", -1614185708),
    (b"12345", -1188365604),
]


@pytest.mark.parametrize(("key", "signed"), JAVA_VECTORS)
def test_the_hash_is_the_java_clients(key: bytes, signed: int) -> None:
    assert signed & 0xFFFF_FFFF == murmur2(key)


@pytest.mark.parametrize(("key", "signed"), JAVA_VECTORS)
def test_the_partition_is_the_hash_without_its_sign_modulo_the_count(key: bytes, signed: int) -> None:
    for partitions in (1, 4, 7, 12, 1000):
        assert (signed & 0x7FFF_FFFF) % partitions == partition_for(key, partitions)


def test_all_partitions_get_a_fair_share_of_keys() -> None:
    counts = [0] * 12
    for number in range(12_000):
        counts[partition_for(b"billing/invoice-%d" % number, 12)] += 1
    assert min(counts) > 850
    assert max(counts) < 1150
