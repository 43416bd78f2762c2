"""Records and rows as bytes: both directions, against fastavro, and with bytes that are wrong."""

import contextlib
import gc
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from io import BytesIO
from typing import Any

import pytest
from fastavro import parse_schema, schemaless_reader, schemaless_writer
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.schemas.values import plain, values
from tocsin.schemas import codec, varints
from tocsin.schemas.codec import (
    CodecError,
    Undecodable,
    Unencodable,
    UnknownLayout,
    UnknownSchema,
    decode,
    decode_as,
    decode_row,
    digest,
    encode,
    encode_row,
)
from tocsin.schemas.compiler import decoder, encoder
from tocsin.schemas.job import FunctionTarget, HttpTarget, Job, Retry, Schedule
from tocsin.schemas.records import Attempt, DueRun, JobDefinition, Pause, Resume, RunEvent
from tocsin.schemas.registry import RECORDS, ROWS, fingerprint, schema_of
from tocsin.schemas.rows import JobRow, PendingRow, RunRow
from tocsin.schemas.shapes import record_shape

EVERYTHING = pytest.mark.parametrize("cls", [*RECORDS, *ROWS], ids=lambda cls: cls.__name__)
SOME = settings(max_examples=max(15, settings().max_examples // 6))

PAUSE = Pause(
    namespace="billing", id="send-invoices", until_ms=1_773_043_200_000, actor="alice", reason="holiday"
)
DUE = DueRun(
    run_id="billing/send-invoices@20260309T080000.000Z",
    namespace="billing",
    job_id="send-invoices",
    seq=1_772_000_000_000,
    floor=1_771_999_999_000,
    dispatch=1,
    attempt=1,
    revision=3,
    cause="schedule",
    nominal_ms=1_773_043_200_000,
    due_ms=1_773_043_392_000,
    start_deadline_ms=1_773_129_792_000,
    emitted_ms=1_773_043_382_000,
    lease_ms=60_000,
    http=HttpTarget(url="https://api.example.com/hooks/invoices", headers=(("X-Team", "billing"),)),
)


def _crc_64_avro(data: bytes) -> int:
    """As the Avro specification defines it, bit by bit."""
    empty = crc = 0xC15D213AA4D7A795
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (empty & -(crc & 1))
    return crc


# --- what the bytes are ------------------------------------------------------------------------------------------------


def test_a_record_is_an_avro_single_object_of_its_schemas_fingerprint() -> None:
    data = encode(Resume(namespace="a", id="b"))
    # The parsing canonical form, written out by hand.
    text = ",".join(
        f'{{"name":"{name}","type":"{kind}"}}'
        for name, kind in (
            ("namespace", "string"),
            ("id", "string"),
            ("after_jobs_offset", "long"),
            ("actor", "string"),
            ("reason", "string"),
        )
    )
    canonical = f'{{"name":"tocsin.Resume","type":"record","fields":[{text}]}}'
    expected = (
        b"\xc3\x01" + _crc_64_avro(canonical.encode()).to_bytes(8, "little") + b"\x02a\x02b\x01\x00\x00"
    )
    assert expected == data


def test_the_fingerprint_of_the_specifications_example_is_the_specifications() -> None:
    assert 0x7275D51A3F395C8F == _crc_64_avro(b'"int"')


def test_every_record_has_a_fingerprint_of_its_own() -> None:
    assert len(RECORDS) == len({fingerprint(schema_of(cls.__name__)) for cls in RECORDS})


def test_a_row_is_one_layout_byte_and_its_body() -> None:
    row = PendingRow(kind="trigger", until_ms=1, run_id="r")
    assert b"\x01" + encoder(PendingRow)(row, b"") == encode_row(row)


@EVERYTHING
@SOME
@given(data=st.data())
def test_fastavro_writes_and_reads_the_same_bytes(cls: type, data: st.DataObject) -> None:
    value = data.draw(values(cls))
    schema = parse_schema(schema_of(cls.__name__))
    as_fastavro_has_it = plain(value, record_shape(cls))
    written = BytesIO()
    schemaless_writer(written, schema, as_fastavro_has_it)
    ours = encoder(cls)(value, b"")
    assert written.getvalue() == ours
    assert as_fastavro_has_it == schemaless_reader(BytesIO(ours), schema, None)


# --- both directions ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cls", RECORDS, ids=lambda cls: cls.__name__)
@SOME
@given(data=st.data())
def test_what_was_encoded_decodes_to_the_same_record(cls: type, data: st.DataObject) -> None:
    record = data.draw(values(cls))
    encoded = encode(record)
    decoded = decode(encoded)
    assert record == decoded
    assert type(record) is type(decoded)
    assert hash(record) == hash(decoded)
    assert encoded == encode(decoded)


@pytest.mark.parametrize("cls", ROWS, ids=lambda cls: cls.__name__)
@SOME
@given(data=st.data())
def test_what_was_encoded_decodes_to_the_same_row(cls: type, data: st.DataObject) -> None:
    row = data.draw(values(cls))
    decoded: Any = decode_row(cls, encode_row(row))
    assert row == decoded
    assert encode_row(row) == encode_row(decoded.copy())


@given(st.integers(-(2**63), 2**63 - 1))
def test_every_long_is_written_and_read(n: int) -> None:
    small = varints.SMALL_MIN <= n < varints.SMALL_END
    written = varints.SMALL[n] if small else varints.write_long(n)
    assert (n, len(written)) == varints.read_long(written, 0)
    assert (n, len(written) + 3) == varints.read_long(b"abc" + written + b"\xff\xff", 3)


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("bits", range(64))
def test_a_long_at_the_edge_of_a_length_keeps_its_value(bits: int, sign: int) -> None:
    for near in (-1, 0, 1):
        n = max(-(2**63), min(2**63 - 1, sign * 2**bits + near))
        event = replace(PAUSE, until_ms=n)
        # Twice: the second time the upper part of an instant is known.
        assert event == decode(encode(event)) == decode(encode(event))


def test_a_negative_number_does_not_change_how_its_positive_neighbour_is_read() -> None:
    varints.HIGH.clear()
    for n in (-1_773_043_200_001, 1_773_043_200_000, -1_773_043_200_000):
        assert n == decode_as(Pause, encode(replace(PAUSE, until_ms=n))).until_ms


def test_the_memory_of_instants_is_bounded() -> None:
    varints.HIGH.clear()
    for i in range(varints.HIGH_MAX + 10):
        n = 1_773_043_200_000 + i * 8_192
        assert n == decode_as(Pause, encode(replace(PAUSE, until_ms=n))).until_ms
        assert len(varints.HIGH) <= varints.HIGH_MAX
    varints.HIGH.clear()


def test_a_decoded_record_is_frozen_and_collected_like_any_other() -> None:
    decoded = decode_as(Pause, encode(PAUSE))
    with pytest.raises(AttributeError):
        decoded.reason = "other"  # type: ignore[misc]
    assert repr(PAUSE) == repr(decoded)
    assert replace(PAUSE, id="x") == replace(decoded, id="x")
    before = len([o for o in gc.get_objects() if isinstance(o, DueRun)])
    del decoded
    gc.collect()
    assert before == len([o for o in gc.get_objects() if isinstance(o, DueRun)])


def test_rows_decoded_from_the_same_bytes_share_no_list() -> None:
    data = encode_row(JobRow())
    first, second = decode_row(JobRow, data), decode_row(JobRow, data)
    first.open.append(1)
    assert [] == second.open


def test_mappings_are_written_in_the_order_of_their_keys() -> None:
    one = HttpTarget(url="u", headers=(("a", "1"), ("b", "2"), ("c", "3")))
    other = HttpTarget(url="u", headers=(("c", "3"), ("a", "1"), ("b", "2")))
    assert encode(replace(DUE, http=one)) == encode(replace(DUE, http=other))
    assert one == decode_as(DueRun, encode(replace(DUE, http=other))).http


def test_a_mapping_of_another_writer_is_read_in_the_order_of_its_keys() -> None:
    # Two blocks, the second with its size, keys in descending order: all of which Avro allows.
    blocks = b"\x04\x02c\x023\x02b\x022" + b"\x01\x08\x02a\x021" + b"\x00"
    assert ((("a", "1"), ("b", "2"), ("c", "3")), len(blocks)) == varints.read_pairs(blocks + b"rest", 0)
    with pytest.raises(ValueError, match="a map has a key twice"):
        varints.read_pairs(b"\x04\x02a\x021\x02a\x022\x00", 0)


def test_an_array_in_several_blocks_is_read_as_one() -> None:
    read = decoder(Schedule)
    whole = encoder(Schedule)(Schedule(cron=("a", "b")), b"")
    assert whole.startswith(b"\x04\x02a\x02b\x00")
    split = b"\x02\x02a\x01\x04\x02b\x00" + whole[6:]
    assert (Schedule(cron=("a", "b")), len(split)) == read(split, 0)


def test_equal_numbers_have_equal_bytes() -> None:
    def of(retry: Retry) -> bytes:
        job = Job(id="a", function=FunctionTarget(name="f"), retry=retry)
        return encode(JobDefinition(namespace="default", id="a", job=job))

    assert of(Retry(factor=2.0, jitter=0.0)) == of(Retry(factor=2, jitter=-0.0))


def test_many_threads_encode_and_decode_at_once() -> None:
    ready = threading.Barrier(8)

    def work(n: int) -> list[Any]:
        ready.wait(timeout=60)
        made = []
        for i in range(300):
            due = replace(DUE, seq=n * 10**9 + i * 8_192, attempt=i)
            made.append(due == decode_as(DueRun, encode(due)))
            row = RunRow(**{f: getattr(DUE, f) for f in _SHARED}, job_key="a/b", status="running")
            made.append(row == decode_row(RunRow, encode_row(row)))
        return made

    for known in (encoder, decoder):
        known.cache_clear()
    with ThreadPoolExecutor(8) as pool:
        assert all(all(made) for made in pool.map(work, range(8)))


_SHARED = ("run_id", "seq", "revision", "cause", "nominal_ms", "due_ms")


# --- what is refused ---------------------------------------------------------------------------------------------------


@EVERYTHING
@SOME
@given(data=st.data())
def test_bytes_that_were_cut_off_or_changed_never_pass_unnoticed_as_an_error_of_ours(
    cls: type, data: st.DataObject
) -> None:
    value = data.draw(values(cls))
    row = cls in ROWS
    whole = encode_row(value) if row else encode(value)
    start = 1 if row else 10

    def read(damaged: bytes) -> Any:
        return decode_row(cls, damaged) if row else decode(damaged)

    cut = data.draw(st.integers(0, len(whole) - 1))
    with pytest.raises(CodecError):
        read(whole[:cut])
    with pytest.raises(Undecodable, match="follow"):
        read(whole + b"\0")
    at = data.draw(st.integers(start, len(whole) - 1)) if len(whole) > start else 0
    if at:
        damaged = bytearray(whole)
        damaged[at] ^= data.draw(st.integers(1, 255))
        with contextlib.suppress(CodecError):  # or it is another valid value
            read(bytes(damaged))


@given(st.binary(max_size=200))
def test_any_bytes_behind_a_known_header_are_a_record_or_undecodable(body: bytes) -> None:
    for cls in (DueRun, RunEvent, JobDefinition):
        header = b"\xc3\x01" + fingerprint(schema_of(cls.__name__))
        with contextlib.suppress(Undecodable):
            assert isinstance(decode(header + body), cls)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "not an Avro single object: it begins with nothing"),
        (b'{"id": "a"}', "not an Avro single object: it begins with 7b 22"),
        (b"\xc3\x01\x00", "not an Avro single object: it begins with c3 01 00"),
    ],
)
def test_what_is_no_avro_single_object_is_undecodable(data: bytes, message: str) -> None:
    with pytest.raises(Undecodable, match=message):
        decode(data)


def test_an_unknown_fingerprint_is_named_and_not_remembered() -> None:
    known = len(codec._READERS)
    with pytest.raises(UnknownSchema, match="0807060504030201") as caught:
        decode(b"\xc3\x01" + bytes(range(1, 9)) + b"body")
    assert "0807060504030201" == caught.value.fingerprint
    assert known == len(codec._READERS)


def test_another_kind_of_record_is_refused_where_one_kind_belongs() -> None:
    with pytest.raises(Undecodable, match="a Pause stands where a Resume belongs"):
        decode_as(Resume, encode(PAUSE))


def test_an_unknown_layout_of_a_row_is_named() -> None:
    with pytest.raises(
        UnknownLayout, match="JobRow: layout 2 is unknown; this process knows layout 1"
    ) as caught:
        decode_row(JobRow, b"\x02" + encode_row(JobRow())[1:])
    assert 2 == caught.value.layout
    with pytest.raises(Undecodable, match="no bytes"):
        decode_row(JobRow, b"")


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"\x03", "a length is negative: -2"),
        (b"\xff\xff\xff\xff\x0f", "a length is negative: -"),
        (b"\x04\xff\xfe", "codec can't decode"),
        (b"\x80" * 10 + b"\x01", "more than ten bytes"),
        (b"\xff" * 9 + b"\x7f", "more than 64 bits"),
        (b"\x06ab", "ends early"),
    ],
)
def test_a_body_that_is_no_avro_is_refused_with_what_is_wrong(body: bytes, message: str) -> None:
    with pytest.raises(Undecodable, match=message):
        decode(b"\xc3\x01" + fingerprint(schema_of("Resume")) + body)


def _http(**wrong: Any) -> HttpTarget:
    return HttpTarget(url="u", **wrong)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"run_id": 3}, r"DueRun\.run_id: expected text, got int '3'"),
        ({"run_id": "a\ud800"}, r"DueRun\.run_id: surrogates not allowed \(character 1\)"),
        ({"seq": 2**63}, r"DueRun\.seq: 9223372036854775808 does not fit in 64 bits"),
        ({"seq": 1.5}, r"DueRun\.seq: expected an integer, got float '1\.5'"),
        ({"concurrency_key": None}, r"DueRun\.concurrency_key: expected text, got NoneType"),
        ({"http": _http(headers=None)}, r"DueRun\.http\.headers: expected pairs of key and value"),
        ({"http": _http(success=None)}, r"DueRun\.http\.success: expected a sequence"),
        ({"cause": "whim"}, r"DueRun\.cause: 'whim' is none of schedule, trigger"),
        ({"http": "x"}, r"DueRun\.http: expected a HttpTarget, got str 'x'"),
        ({"http": _http(body="text")}, r"DueRun\.http\.body: expected bytes, got str 'text'"),
        (
            {"http": HttpTarget(url="u", headers=(("a", "1"), ("a", "2")))},
            r"DueRun\.http\.headers: a key is there twice",
        ),
        ({"http": _http(headers=(("a", 1),))}, r"DueRun\.http\.headers\['a'\]: expected text"),
        (
            {"http": _http(success=((200, "x"),))},
            r"DueRun\.http\.success\[0\]\[1\]: expected an integer, got str 'x'",
        ),
        ({"http": _http(success=(200,))}, r"DueRun\.http\.success\[0\]: expected a tuple of 2"),
        ({"http": _http(success=5)}, r"DueRun\.http\.success: expected a sequence"),
    ],
)
def test_a_value_that_the_schema_cannot_hold_is_refused_with_its_field(
    change: dict[str, Any], message: str
) -> None:
    with pytest.raises(Unencodable, match=message):
        encode(replace(DUE, **change))


def test_a_row_that_its_schema_cannot_hold_is_refused_with_its_field() -> None:
    attempt = Attempt(attempt=1, dispatch=1, due_ms=1, outcome="gone")  # type: ignore[arg-type]
    shared = {f: getattr(DUE, f) for f in _SHARED}
    with pytest.raises(Unencodable, match=r"RunRow\.attempts\[0\]\.outcome: 'gone' is none of pending"):
        encode_row(RunRow(**shared, job_key="a/b", status="running", attempts=[attempt]))


def test_what_is_no_boolean_is_not_taken_for_one() -> None:
    with pytest.raises(Unencodable, match=r"JobRow\.paused: expected true or false, got str 'no'"):
        encode_row(JobRow(paused="no"))  # type: ignore[arg-type]
    with pytest.raises(Unencodable, match=r"JobRow\.open: expected a sequence, got NoneType"):
        encode_row(JobRow(open=None))  # type: ignore[arg-type]


def test_only_records_are_encoded_as_records_and_rows_as_rows() -> None:
    with pytest.raises(Unencodable, match="JobRow is no record"):
        encode(JobRow())  # type: ignore[arg-type]
    with pytest.raises(Unencodable, match="Pause is no row"):
        encode_row(PAUSE)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="Pause is no row"):
        decode_row(Pause, b"\x01")  # type: ignore[type-var]


def test_every_error_is_a_codec_error_and_a_value_error() -> None:
    for error in (UnknownSchema, Undecodable, UnknownLayout, Unencodable):
        assert issubclass(error, CodecError)
        assert issubclass(error, ValueError)


# --- the digest --------------------------------------------------------------------------------------------------------

JOB = Job(
    namespace="billing",
    id="send-invoices",
    labels=(("team", "billing"), ("tier", "1")),
    schedule=Schedule(cron=("0 9 * * MON-FRI",), timezone="Europe/Berlin"),
    http=HttpTarget(url="https://api.example.com/hooks/invoices", success=((200, 299), (409, 409))),
)


def test_the_digest_stays_what_it_is_over_versions() -> None:
    # Another digest is another revision of every job that was ever defined.
    assert "3c19508c73d7ba1210876749b423fb05" == digest(JOB).hex()


def test_the_digest_does_not_depend_on_paused_nor_on_how_an_equal_value_was_written() -> None:
    same = replace(JOB, paused=True, labels=JOB.labels[::-1], retry=Retry(factor=4, jitter=0.2))
    assert digest(JOB) == digest(same)
    assert digest(replace(JOB, retry=Retry(jitter=0.0))) == digest(replace(JOB, retry=Retry(jitter=-0.0)))


@given(values(Job), values(Job))
def test_the_digest_is_equal_for_equal_definitions_only(one: Job, other: Job) -> None:
    equal = replace(one, paused=False) == replace(other, paused=False)
    assert equal == (digest(one) == digest(other))
    read_back = decode_as(JobDefinition, encode(JobDefinition(namespace="a", id="b", job=one))).job
    assert read_back is not None
    assert digest(one) == digest(read_back)
    assert 16 == len(digest(one))
