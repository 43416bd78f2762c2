"""Signatures: the vector of the specification's libraries, rotation, and whatever somebody may try."""

import pytest

from tocsin.signing import InvalidSecret, InvalidSignature, format_secret, parse_secret, sign, verify

# The reference vector that the libraries of Standard Webhooks are tested with.
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
OTHER = format_secret(bytes(range(32)))
ID = "msg_p5jXN8AQM9LWM0D4loKWxJek"
SENT_S = 1_614_265_330
BODY = b'{"test": 2432232314}'
SIGNATURE = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


def headers(**changed: str) -> dict[str, str]:
    return {"webhook-id": ID, "webhook-timestamp": str(SENT_S), "webhook-signature": SIGNATURE} | {
        name.replace("_", "-"): value for name, value in changed.items()
    }


def test_the_reference_vector_is_signed_and_verified() -> None:
    key = parse_secret(SECRET)
    assert SIGNATURE == sign([key], message_id=ID, timestamp_s=SENT_S, body=BODY)
    assert ID == verify(headers(), BODY, [SECRET], now_s=SENT_S)


def test_while_a_secret_is_rotated_each_side_may_know_one_of_the_two() -> None:
    both = sign([parse_secret(OTHER), parse_secret(SECRET)], message_id=ID, timestamp_s=SENT_S, body=BODY)
    assert 2 == len(both.split(" "))
    for known in (SECRET, OTHER):
        assert ID == verify(headers(webhook_signature=both), BODY, [known], now_s=SENT_S)
    assert ID == verify(headers(), BODY, [OTHER, SECRET], now_s=SENT_S)


def test_names_of_headers_are_read_in_any_case() -> None:
    shouted = {name.upper(): value for name, value in headers().items()}
    assert ID == verify(shouted, BODY, [SECRET], now_s=SENT_S)


@pytest.mark.parametrize(
    ("changed", "body", "now_s", "why"),
    [
        ({"webhook_id": "another"}, BODY, SENT_S, "no signature"),
        ({"webhook_timestamp": str(SENT_S + 1)}, BODY, SENT_S, "no signature"),
        ({}, BODY + b" ", SENT_S, "no signature"),
        ({}, BODY, SENT_S + 301, "300 s away"),
        ({}, BODY, SENT_S - 301, "300 s away"),
        ({"webhook_timestamp": "soon"}, BODY, SENT_S, "whole number"),
        ({"webhook_timestamp": "-1614265330"}, BODY, SENT_S, "whole number"),
        ({"webhook_timestamp": "٣"}, BODY, SENT_S, "whole number"),
        ({"webhook_signature": SIGNATURE.replace("v1,", "v2,")}, BODY, SENT_S, "no signature"),
        ({"webhook_signature": "v1,"}, BODY, SENT_S, "no signature"),
        ({"webhook_signature": "v1,???"}, BODY, SENT_S, "no signature"),
        ({"webhook_signature": ""}, BODY, SENT_S, "webhook-signature is missing"),
        ({"webhook_id": ""}, BODY, SENT_S, "webhook-id is missing"),
        ({"webhook_signature": " ".join(["v1,YQ=="] * 10 + [SIGNATURE])}, BODY, SENT_S, "no signature"),
    ],
)
def test_what_was_changed_forged_or_kept_is_refused(
    changed: dict[str, str], body: bytes, now_s: float, why: str
) -> None:
    with pytest.raises(InvalidSignature, match=why):
        verify(headers(**changed), body, [SECRET], now_s=now_s)


def test_a_request_is_refused_by_a_receiver_that_knows_no_secret() -> None:
    with pytest.raises(InvalidSignature):
        verify(headers(), BODY, [], now_s=SENT_S)
    with pytest.raises(InvalidSignature):
        verify(headers(), BODY, [OTHER], now_s=SENT_S)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "does not begin with whsec_"),
        ("", "does not begin with whsec_"),
        ("whsec_!!!", "no base64"),
        ("whsec_c2hvcnQ=", "has 5 bytes"),
        (format_secret(bytes(65)), "has 65 bytes"),
    ],
)
def test_what_is_no_signing_secret_is_refused_without_being_repeated(text: str, why: str) -> None:
    with pytest.raises(InvalidSecret, match=why) as refused:
        parse_secret(text)
    assert not text.removeprefix("whsec_") or text.removeprefix("whsec_") not in str(refused.value)


def test_a_secret_is_written_as_it_is_read() -> None:
    assert SECRET == format_secret(parse_secret(SECRET))
