"""The job document: what holds for any job and for anything that someone may send."""

import json
from dataclasses import replace
from typing import Any

import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.schemas.documents import (
    WHOLE,
    good,
)
from tests.unit.schemas.values import values
from tocsin.schemas.document import parse, render
from tocsin.schemas.job import (
    CatchUp,
    Exclusion,
    FunctionTarget,
    HttpTarget,
    Job,
    Problem,
    Retry,
    Schedule,
)
from tocsin.schemas.layout import DOCUMENT
from tocsin.schemas.limits import DAY_MS

_SAFE_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | _SAFE_TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_SAFE_TEXT, inner, max_size=3),
    max_leaves=6,
)
_OBJECT = st.dictionaries(_SAFE_TEXT, _JSON, max_size=3)
_INSTANT = st.integers(0, 253_402_300_799_999)
_DURATION = st.integers(0, 10 * 365 * DAY_MS)


def _shortest(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


@st.composite
def jobs(draw: st.DrawFn) -> Job:
    """Any job that a document can mean, valid or not."""
    job = draw(values(Job))
    schedule = draw(values(Schedule))
    instants = {
        name: draw(st.none() | _INSTANT) for name in ("at_ms", "anchor_ms", "starts_at_ms", "ends_at_ms")
    }
    exclusion = st.builds(
        Exclusion, cron=_SAFE_TEXT, from_ms=st.none() | _INSTANT, to_ms=st.none() | _INSTANT
    )
    schedule = replace(
        schedule,
        **instants,
        timezone="UTC",
        every_ms=draw(st.none() | _DURATION),
        delay_ms=draw(st.none() | _DURATION),
        spread_ms=draw(_DURATION),
        exclude=tuple(draw(st.lists(exclusion, max_size=2))),
    )
    body = draw(
        st.just((b"", "none"))
        | st.tuples((_OBJECT | st.lists(_JSON, max_size=3)).map(_shortest), st.just("json"))
        | st.tuples(_SAFE_TEXT.map(str.encode), st.just("text"))
        | st.tuples(st.binary(max_size=9), st.just("base64"))
    )
    codes = st.tuples(st.integers(100, 999), st.integers(100, 999))
    any_http = draw(values(HttpTarget))
    texts = dict(any_http.headers)
    http = replace(
        any_http,
        secret_headers=tuple((name, s) for name, s in any_http.secret_headers if name not in texts),
        body=body[0],
        body_kind=body[1],
        timeout_ms=draw(_DURATION),
        success=tuple(draw(st.lists(codes, max_size=3))),
    )
    function = replace(draw(values(FunctionTarget)), arguments=_shortest(draw(_OBJECT)))
    retry = replace(
        draw(values(Retry)),
        base_ms=draw(_DURATION),
        max_ms=draw(_DURATION),
        max_age_ms=draw(_DURATION),
        delays_ms=tuple(draw(st.lists(_DURATION, max_size=3))),
        factor=draw(st.floats(-1e15, 1e15)),
        jitter=draw(st.floats(-1e15, 1e15)),
    )
    catchup = replace(draw(values(CatchUp)), window_ms=draw(_DURATION), grace_ms=draw(_DURATION))
    made: Job = replace(
        job,
        schedule=schedule,
        http=draw(st.sampled_from((http, None))),
        function=draw(st.sampled_from((function, None))),
        retry=retry,
        catchup=catchup,
        lease_ms=draw(_DURATION),
    )
    return made


@settings(max_examples=max(50, settings().max_examples // 2))
@given(jobs(), st.booleans())
def test_a_job_that_is_written_and_read_again_is_the_same_job(job: Job, full: bool) -> None:
    written = render(job, full)
    assert (job, ()) == parse(written)
    # The same through JSON and through YAML.
    assert (job, ()) == parse(json.loads(json.dumps(written)))
    assert written == render(good(written), full)


@settings(max_examples=max(20, settings().max_examples // 5))
@given(jobs())
def test_a_job_survives_yaml(job: Job) -> None:
    written = yaml.safe_dump(json.loads(json.dumps(render(job))), allow_unicode=False, sort_keys=False)
    assert (job, ()) == parse(yaml.safe_load(written))


_ANYTHING = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=6)
    | st.dates()
    | st.datetimes(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(max_size=4) | st.integers(0, 3), inner, max_size=3)
    ),
    max_leaves=8,
)


def _known_names() -> list[str]:
    return sorted({*DOCUMENT.places(), "limits", "after", "topic", "calendar", "secret"})


_DOCUMENTS = st.recursive(
    _ANYTHING,
    lambda inner: st.dictionaries(st.sampled_from(_known_names()), inner, max_size=5),
    max_leaves=15,
)


@settings(max_examples=settings().max_examples * 2)
@given(_DOCUMENTS)
def test_any_document_is_answered_with_a_job_or_with_problems_never_with_an_error_of_ours(
    document: Any,
) -> None:
    job, found = parse(document)
    assert (job is None) == bool(found)
    for each in found:
        assert isinstance(each, Problem)
        assert each.rule
        assert each.message
        assert len(each.value) <= 200
    if job is not None:
        assert (job, ()) == parse(render(job))


@settings(max_examples=settings().max_examples * 2)
@given(st.data())
def test_a_damaged_document_is_answered_with_problems_that_lie_within_the_damage(data: st.DataObject) -> None:
    document = yaml.safe_load(WHOLE)
    path: list[str] = []
    place = document
    while True:
        name = data.draw(st.sampled_from(sorted(place)))
        path.append(name)
        if not isinstance(place[name], dict) or data.draw(st.booleans()):
            break
        place = place[name]
    place[path[-1]] = data.draw(_ANYTHING)
    field = ".".join(path)
    _, found = parse(document)
    for each in found:
        assert each.field.startswith(field) or field.startswith(each.field), each
