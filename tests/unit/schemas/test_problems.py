"""Every rule of a definition: the field it names, its slug, and what its message says to do."""

# ruff: noqa: E501 - a table reads by its rows

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.schemas.values import values
from tocsin.schemas.codec import digest, encode
from tocsin.schemas.job import (
    CatchUp,
    Exclusion,
    FunctionTarget,
    HttpTarget,
    Job,
    Overlap,
    Problem,
    Retry,
    Schedule,
)
from tocsin.schemas.problems import problems
from tocsin.schemas.records import JobDefinition

HTTP = HttpTarget(url="https://api.example.com/hooks/invoices")
JOB = Job(namespace="billing", id="send-invoices", http=HTTP)
DAY = 86_400_000
NEW_YEAR = 1_767_225_600_000  # 2026-01-01T00:00:00Z
NOW = NEW_YEAR + 10 * DAY


def of_job(**changes: Any) -> Job:
    return replace(JOB, **changes)


def of_http(**changes: Any) -> Job:
    return replace(JOB, http=replace(HTTP, **changes))


def of_function(**changes: Any) -> Job:
    return replace(JOB, http=None, function=FunctionTarget(**({"name": "f"} | changes)))


def of_schedule(**changes: Any) -> Job:
    return replace(JOB, schedule=Schedule(**changes))


def of_cron(*expressions: str, **changes: Any) -> Job:
    return replace(JOB, schedule=Schedule(cron=expressions, **changes))


def of_retry(**changes: Any) -> Job:
    return replace(JOB, retry=Retry(**changes))


def headers(*pairs: tuple[str, str]) -> Job:
    return of_http(headers=pairs)


def of_text(text: str) -> Job:
    return of_http(body=text.encode(), body_kind="text")


# field, rule, what the message holds, value; the job that has this one problem.
TABLE: list[tuple[str, str, str, str, Job]] = [
    # --- identity
    ("namespace", "id-grammar", "namespace is empty: a letter or digit first", "", of_job(namespace="")),
    ("namespace", "id-grammar", "may not begin with '_'", "_a", of_job(namespace="_a")),
    ("id", "id-grammar", "id may not hold '/'", "a/b", of_job(id="a/b")),
    ("id", "id-grammar", "id may not hold 'ü'", "büro", of_job(id="büro")),
    ("id", "id-grammar", "may not hold '\\n'", "a\n", of_job(id="a\n")),
    ("id", "id-grammar", "has 129 characters, at most 128", "a" * 129, of_job(id="a" * 129)),
    ("queue", "id-grammar", "queue may not hold ' '", "my queue", of_job(queue="my queue")),
    ("description", "description-length", "at most 4,096 characters, this one 4,097", "x" * 200, of_job(description="x" * 4_097)),
    ("description", "control-character", "the character '\\x00' cannot", "a\0b", of_job(description="a\0b")),
    ("description", "control-character", "the character '\\x1b' cannot", "\x1b[2J", of_job(description="\x1b[2J")),
    ("description", "control-character", "the character '\\x9b' cannot", "\x9b2J", of_job(description="\x9b2J")),
    # --- labels
    ("labels", "labels-max", "at most 16 labels, not 17", "17", of_job(labels=tuple((f"k{i:02}", "") for i in range(17)))),
    ("labels.a b", "label-key", "no name of a label", "a b", of_job(labels=(("a b", "x"),))),
    ("labels.", "label-key", "no name of a label", "", of_job(labels=(("", "x"),))),
    ("labels.a", "label-value", "at most 128 characters, this one 129", "v" * 129, of_job(labels=(("a", "v" * 129),))),
    ("labels.a", "label-value", "the character '\\x00' cannot", "x\0", of_job(labels=(("a", "x\0"),))),
    ("labels.a", "label-value", "the character '\\x9b' cannot", "\x9b2J", of_job(labels=(("a", "\x9b2J"),))),
    ("labels.a", "label-duplicate", "given twice", "2", of_job(labels=(("a", "1"), ("a", "2")))),
    # --- schedule: which
    ("schedule", "one-of", "here are cron and every: keep one", "cron, every", of_cron("* * * * *", every_ms=1_000)),
    ("schedule", "one-of", "here are at and delay: keep one", "at, delay", of_schedule(at_ms=1, delay_ms=1)),
    ("schedule.anchor", "needs-every", "no every: leave it out", "", of_cron("* * * * *", anchor_ms=1)),
    ("schedule.after_completion", "needs-every", "no every: leave it out", "", of_schedule(after_completion=True)),
    ("schedule.anchor", "anchor-unused", "leave anchor out", "1970-01-01T00:00:00.001Z", of_schedule(every_ms=1_000, after_completion=True, anchor_ms=1)),
    # --- schedule: zone and expressions
    ("schedule.timezone", "timezone-unknown", "did you mean Europe/Berlin", "Europe/Berln", of_cron("* * * * *", timezone="Europe/Berln")),
    ("schedule.timezone", "timezone-unknown", "empty", "", of_schedule(every_ms=1_000, timezone="")),
    ("schedule.cron[0]", "cron-minute", "minute 75 is outside 0-59", "75 * * * *", of_cron("75 * * * *")),
    ("schedule.cron[1]", "cron-field-count", "4 fields where five are needed", "* * * *", of_cron("* * * * *", "* * * *")),
    ("schedule.cron[0]", "cron-macro", "@reboot names no time", "@reboot", of_cron("@reboot")),
    ("schedule.cron[0]", "cron-never", "0 0 31 4 * never fires: no year has such a day", "0 0 31 4 *", of_cron("0 0 31 4 *")),
    ("schedule.cron[1]", "cron-never", "never fires", "0 0 30 2 *", of_cron("* * * * *", "0 0 30 2 *")),
    ("schedule.cron", "expressions-max", "at most 64 expressions, not 65", "65", of_cron(*["* * * * *"] * 65)),
    # --- schedule: exclusions
    ("schedule.exclude[0].cron", "cron-hour", "hour 24 is outside 0-23", "* 24 * * *", of_cron("* * * * *", exclude=(Exclusion(cron="* 24 * * *"),))),
    ("schedule.exclude[0]", "exclusion", "with both ends", "", of_cron("* * * * *", exclude=(Exclusion(),))),
    ("schedule.exclude[1]", "exclusion", "with both ends", "", of_cron("* * * * *", exclude=(Exclusion(cron="* * 1 * *"), Exclusion(from_ms=1)))),
    ("schedule.exclude[0]", "exclusion", "with both ends", "", of_cron("* * * * *", exclude=(Exclusion(cron="* * 1 * *", from_ms=1, to_ms=2),))),
    ("schedule.exclude[0].to", "order", "give the day after", "2026-01-01T00:00:00.000Z", of_cron("* * * * *", exclude=(Exclusion(from_ms=NEW_YEAR, to_ms=NEW_YEAR),))),
    ("schedule.exclude[0].from", "instant-range", "outside the years 1970 to 9999", "1969-12-31T23:59:59.999Z", of_cron("* * * * *", exclude=(Exclusion(from_ms=-1, to_ms=1),))),
    ("schedule.exclude", "exclusions-max", "at most 400 exclusions are allowed, not 401", "401", of_cron("* * * * *", exclude=tuple(Exclusion(from_ms=i, to_ms=i + 1) for i in range(401)))),
    ("schedule.exclude", "expressions-max", "at most 64 of the exclusions are cron expressions, not 65: use ranges", "65", of_cron("* * * * *", exclude=(Exclusion(cron="* * 1 * *"),) * 65)),
    # --- schedule: bounds
    ("schedule.every", "range", "every is 1s to 3660d, not 999ms", "999ms", of_schedule(every_ms=999)),
    ("schedule.every", "range", "not -1s", "-1s", of_schedule(every_ms=-1_000)),
    ("schedule.every", "range", "not 3660d1ms", "3660d1ms", of_schedule(every_ms=3_660 * DAY + 1)),
    ("schedule.delay", "range", "delay is 0s to 3660d, not -1ms", "-1ms", of_schedule(delay_ms=-1)),
    ("schedule.spread", "range", "spread is 0s to 1d, not 1d1ms", "1d1ms", of_schedule(every_ms=1_000, spread_ms=DAY + 1)),
    ("schedule.spread", "range", "not -1ms", "-1ms", of_schedule(every_ms=1_000, spread_ms=-1)),
    ("schedule.max_runs", "range", "max_runs is 1 to 9,007,199,254,740,991, not 0", "0", of_schedule(every_ms=1_000, max_runs=0)),
    ("schedule.at", "instant-range", "outside the years 1970 to 9999", "253402300800000 ms", of_schedule(at_ms=253_402_300_800_000)),
    ("schedule.anchor", "instant-range", "outside the years 1970 to 9999", "1969-12-31T23:59:59.999Z", of_schedule(every_ms=1_000, anchor_ms=-1)),
    ("schedule.starts_at", "instant-range", "outside the years 1970 to 9999", "1969-12-31T23:59:59.999Z", of_schedule(every_ms=1_000, starts_at_ms=-1)),
    ("schedule.ends_at", "order", "not after starts_at (2026-01-01T00:00:00.000Z)", "2026-01-01T00:00:00.000Z", of_schedule(every_ms=1_000, starts_at_ms=NEW_YEAR, ends_at_ms=NEW_YEAR)),
    ("schedule.at", "never", "at lies before starts_at (2026-01-02", "2026-01-01T00:00:00.000Z", of_schedule(at_ms=NEW_YEAR, starts_at_ms=NEW_YEAR + DAY)),
    ("schedule.at", "never", "at is not before ends_at (2026-01-01", "2026-01-01T00:00:00.000Z", of_schedule(at_ms=NEW_YEAR, ends_at_ms=NEW_YEAR)),
    ("schedule.ends_at", "never", "no occurrence from 2026-01-01T00:00:00.000Z before ends_at", "2026-01-02T00:00:00.000Z", of_cron("0 0 1 2 *", starts_at_ms=NEW_YEAR, ends_at_ms=NEW_YEAR + DAY)),
    ("schedule.ends_at", "never", "no occurrence before ends_at: it would never run", "1970-01-01T00:00:00.000Z", of_cron("0 0 1 1 *", ends_at_ms=0)),
    ("schedule.ends_at", "never", "no occurrence from", "2026-01-08T00:00:00.000Z", of_cron("0 0 * * *", starts_at_ms=NEW_YEAR + 1, ends_at_ms=NEW_YEAR + 7 * DAY, exclude=(Exclusion(from_ms=NEW_YEAR, to_ms=NEW_YEAR + 7 * DAY),))),
    ("schedule.starts_at", "never", "no occurrence from 9999-12-31T23:59:59.000Z", "9999-12-31T23:59:59.000Z", of_cron("* * * * *", starts_at_ms=253_402_300_799_000)),
    ("schedule.starts_at", "never", "no occurrence from 9999-12-31T23:59:59.000Z", "9999-12-31T23:59:59.000Z", of_schedule(every_ms=7_000, anchor_ms=0, starts_at_ms=253_402_300_799_000)),
    ("schedule.exclude[0].cron", "never", "excludes every instant", "* * * * *", of_cron("* * * * * *", exclude=(Exclusion(cron="* * * * *"),))),
    ("schedule.exclude[0].cron", "never", "excludes every instant", "* * * * * *", of_cron("* * * * * *", timezone="Europe/Berlin", exclude=(Exclusion(cron="* * * * * *"),))),
    ("schedule.exclude", "never", "leave nothing of it", "", of_cron("0 9 * * MON-FRI", exclude=(Exclusion(cron="* 9 * * *"),))),
    ("schedule.exclude", "never", "leave nothing of it", "", of_cron("0 9 * * *", exclude=(Exclusion(cron="* * * * MON-FRI"), Exclusion(cron="* * * * SAT,SUN")))),
    ("schedule.exclude", "never", "leave nothing of it", "", of_cron("0 9 * * *", exclude=(Exclusion(from_ms=0, to_ms=253_402_300_799_999),))),
    ("schedule.exclude[0].cron", "never", "excludes every instant", "* * * * *", of_cron("0 9 * * *", starts_at_ms=NEW_YEAR, exclude=(Exclusion(cron="* * * * *"),))),
    ("schedule.exclude[0].cron", "never", "excludes every instant", "* * * * *", of_schedule(every_ms=90_000, exclude=(Exclusion(cron="* * * * *"),))),
    ("schedule.exclude[0].cron", "never", "excludes every instant", "* * * * *", of_schedule(every_ms=90_000, after_completion=True, exclude=(Exclusion(cron="* * * * *"),))),
    ("schedule.exclude", "never", "leave nothing of it", "", of_schedule(every_ms=3_600_000, anchor_ms=0, exclude=(Exclusion(cron="0 * * * *"),))),
    ("schedule.exclude[0].cron", "never", "excludes every instant", "* * * * *", of_schedule(delay_ms=1_000, exclude=(Exclusion(cron="* * * * *"),))),
    ("schedule.exclude", "never", "leave nothing of it", "", of_schedule(at_ms=NEW_YEAR, exclude=(Exclusion(cron="* * 1 1 *"),))),
    ("schedule.exclude", "never", "leave nothing of it", "", of_cron("* * * * * *", exclude=(Exclusion(cron="*/1 * * * *"),))),
    ("schedule.exclude[1].cron", "never", "excludes every instant", "* * * * *", of_schedule(at_ms=NEW_YEAR, exclude=(Exclusion(from_ms=1, to_ms=2), Exclusion(cron="* * * * *")))),
    # --- target
    ("target", "required", "a job needs a target: http or function", "", of_job(http=None)),
    ("target", "one-of", "keep http or function", "http, function", of_job(function=FunctionTarget(name="f"))),
    ("target.http.url", "url", "the URL is empty: write for example https://", "", of_http(url="")),
    ("target.http.url", "url-scheme", "begins with http:// or https://", "ftp://example.com", of_http(url="ftp://example.com")),
    ("target.http.url", "url-scheme", "begins with http:// or https://", "example.com/x", of_http(url="example.com/x")),
    ("target.http.url", "url-host", "names no host", "https:///x", of_http(url="https:///x")),
    ("target.http.url", "url-host", "names no host", "https://:8080/x", of_http(url="https://:8080/x")),
    ("target.http.url", "url-host", "not in its host", "https://${date}.example.com/", of_http(url="https://${date}.example.com/")),
    ("target.http.url", "url-userinfo", "send it in a header", "https://me:secret@example.com/", of_http(url="https://me:secret@example.com/")),
    ("target.http.url", "url", "Port out of range", "https://example.com:70000/", of_http(url="https://example.com:70000/")),
    ("target.http.url", "url", "this is no URL", "https://example.com:x/", of_http(url="https://example.com:x/")),
    ("target.http.url", "url-port", "a port is 1 to 65,535", "https://example.com:0/", of_http(url="https://example.com:0/")),
    ("target.http.url", "url", "this is no URL", "https://[::1/", of_http(url="https://[::1/")),
    ("target.http.url", "url-character", "the character ' ' cannot stand in a URL: write it as %20", "https://example.com/a b", of_http(url="https://example.com/a b")),
    ("target.http.url", "url-character", "write it as %0D", "https://example.com/\r\nx", of_http(url="https://example.com/\r\nx")),
    ("target.http.url", "url-length", "at most 8,192 characters, this one 8,193", "https://example.com/" + "x" * 180, of_http(url="https://example.com/".ljust(8_193, "x"))),
    ("target.http.url", "placeholder", "${nominl} is no placeholder: did you mean ${nominal}?", "${nominl}", of_http(url="https://example.com/?t=${nominl}")),
    ("target.http.method", "method", "'post' is no method that can be sent: write POST", "post", of_http(method="post")),
    ("target.http.method", "method", "use one of GET, HEAD, POST", "CONNECT", of_http(method="CONNECT")),
    ("target.http.timeout", "range", "timeout is 1s to 15m, not 999ms", "999ms", of_http(timeout_ms=999)),
    ("target.http.timeout", "range", "not 15m1ms", "15m1ms", of_http(timeout_ms=900_001)),
    # --- headers
    ("target.http.headers", "headers-max", "at most 64 headers are sent, not 65", "65", headers(*((f"X-{i}", "") for i in range(65)))),
    ("target.http.headers.X Y", "header-name", "no name of a header", "X Y", headers(("X Y", "1"))),
    ("target.http.headers.X:", "header-name", "no name of a header", "X:", headers(("X:", "1"))),
    ("target.http.headers.", "header-name", "no name of a header", "", headers(("", "1"))),
    ("target.http.headers.X-é", "header-name", "no name of a header", "X-é", headers(("X-é", "1"))),
    ("target.http.headers.Host", "header-reserved", "Host is set by Tocsin or by the connection", "Host", headers(("Host", "x"))),
    ("target.http.headers.content-length", "header-reserved", "leave it out", "content-length", headers(("content-length", "1"))),
    ("target.http.headers.Webhook-Id", "header-reserved", "leave it out", "Webhook-Id", headers(("Webhook-Id", "x"))),
    ("target.http.headers.Tocsin-Attempt", "header-reserved", "leave it out", "Tocsin-Attempt", headers(("Tocsin-Attempt", "x"))),
    ("target.http.headers.traceparent", "header-reserved", "leave it out", "traceparent", headers(("traceparent", "x"))),
    ("target.http.headers.x-a", "header-duplicate", "x-a and X-A are one header", "x-a", headers(("X-A", "1"), ("x-a", "2"))),
    ("target.http.headers.X-A", "header-value", "the character '\\r' cannot stand in a header value", "1\r\nX-B: 2", headers(("X-A", "1\r\nX-B: 2"))),
    ("target.http.headers.X-A", "header-value", "the character '\\n' cannot", "1\n", headers(("X-A", "1\n"))),
    ("target.http.headers.X-A", "header-length", "at most 8,192 characters, this one 8,193", "x" * 200, headers(("X-A", "x" * 8_193))),
    ("target.http.headers.X-A", "placeholder", "${job is a placeholder that is not closed", "${job", headers(("X-A", "${job"))),
    # --- body
    ("target.http.body", "body-size", "at most 204,800 bytes (200 KiB) after encoding, this one 204,801", "204801 bytes", of_text("x" * 204_801)),
    ("target.http.body", "body-encoding", "not UTF-8: give bytes as body_base64", "", of_http(body=b"\xff", body_kind="text")),
    ("target.http.body", "body-json", "not JSON", "{", of_http(body=b"{", body_kind="json")),
    ("target.http.body", "body-json", "not JSON", "[NaN]", of_http(body=b"[NaN]", body_kind="json")),
    ("target.http.body", "body-json", "not JSON", "[" * 200, of_http(body=b"[" * 100_000, body_kind="json")),
    ("target.http.body", "body-kind", "there is no body", "", of_http(body=b"x")),
    ("target.http.body_base64", "body-size", "at most 204,800 bytes", "204801 bytes", of_http(body=b"x" * 204_801, body_kind="base64")),
    ("target.http.body", "placeholder", "${attempt} is no placeholder: there are ${nominal}, ${run_id}, ${job}, ${date}", "${attempt}", of_text("${attempt} ${nominal}")),
    ("target.http.body", "placeholder", "${ nominal } is no placeholder: did you mean ${nominal}?", "${ nominal }", of_text("${ nominal }")),
    ("target.http.success", "success", "give 1 to 32 status codes or ranges", "0", of_http(success=())),
    ("target.http.success", "success", "give 1 to 32 status codes or ranges", "33", of_http(success=((200, 200),) * 33)),
    ("target.http.success[1]", "success", "a status code is 100 to 599", "99", of_http(success=((200, 299), (99, 99)))),
    ("target.http.success[0]", "success", "a status code is 100 to 599", "200-600", of_http(success=((200, 600),))),
    ("target.http.success[0]", "success", "runs backwards: write 200-299", "299-200", of_http(success=((299, 200),))),
    # --- functions
    ("target.function.name", "function-name", "name is empty", "", of_function(name="")),
    ("target.function.name", "function-name", "name may not begin with '1'", "1f", of_function(name="1f")),
    ("target.function.name", "function-name", "name may not hold '('", "f()", of_function(name="f()")),
    ("target.function.arguments", "arguments", "arguments are a JSON object", "[1]", of_function(arguments=b"[1]")),
    ("target.function.arguments", "arguments", "arguments are a JSON object", "{", of_function(arguments=b"{")),
    ("target.function.arguments", "arguments", "arguments are a JSON object", "\ufffd", of_function(arguments=b"\xff")),
    ("target.function.arguments", "placeholder", "${dates} is no placeholder: did you mean ${date}?", "${dates}", of_function(arguments=b'{"a":"${dates}"}')),
    ("target.function.arguments", "body-size", "at most 204,800 bytes (200 KiB) as JSON, these 204,810", "204810 bytes", of_function(arguments=b'{"a":"' + b"x" * 204_802 + b'"}')),
    # --- retry
    ("retry.max_attempts", "range", "max_attempts is 1 to 100, not 0", "0", of_retry(max_attempts=0)),
    ("retry.max_attempts", "range", "not -1", "-1", of_retry(max_attempts=-1)),
    ("retry.max_attempts", "range", "not 101", "101", of_retry(max_attempts=101)),
    ("retry.base", "range", "base is 1ms to 7d, not 0s", "0s", of_retry(base_ms=0)),
    ("retry.base", "range", "not -30s", "-30s", of_retry(base_ms=-30_000)),
    ("retry.factor", "range", "factor is 1.0 to 100.0, not 0.5", "0.5", of_retry(factor=0.5)),
    ("retry.factor", "range", "not 101.0", "101.0", of_retry(factor=101.0)),
    ("retry.factor", "range", "not nan", "nan", of_retry(factor=float("nan"))),
    ("retry.jitter", "range", "jitter is 0.0 to 1.0, not 1.5", "1.5", of_retry(jitter=1.5)),
    ("retry.jitter", "range", "not -0.1", "-0.1", of_retry(jitter=-0.1)),
    ("retry.max", "order", "max (1h) is shorter than base (2h): raise max", "1h", of_retry(base_ms=7_200_000)),
    ("retry.max", "range", "max is 1ms to 7d, not 7d1ms", "7d1ms", of_retry(max_ms=7 * DAY + 1)),
    ("retry.max_age", "range", "max_age is 1s to 30d, not 30d1ms", "30d1ms", of_retry(max_age_ms=30 * DAY + 1)),
    ("retry.max_age", "range", "not 0s", "0s", of_retry(max_age_ms=0)),
    ("retry.delays", "delays", "backoff: list needs delays", "", of_retry(backoff="list")),
    ("retry.delays", "delays", "backoff is exponential: set it to list", "", of_retry(delays_ms=(1_000,))),
    ("retry.delays[1]", "range", "delay is 1ms to 7d, not 0s", "0s", of_retry(backoff="list", delays_ms=(1, 0))),
    ("retry.delays", "delays", "at most 99 delays lie between 100 attempts, not 100", "100", of_retry(backoff="list", delays_ms=(1,) * 100)),
    # --- the other policies
    ("lease", "range", "lease is 1s to 1d, not 999ms", "999ms", of_job(lease_ms=999)),
    ("lease", "range", "not 1d1ms", "1d1ms", of_job(lease_ms=DAY + 1)),
    ("overlap.limit", "range", "limit is 1 to 1,000, not 0", "0", of_job(overlap=Overlap(mode="buffer_all", limit=0))),
    ("overlap.limit", "range", "not 1,001", "1001", of_job(overlap=Overlap(mode="buffer_all", limit=1_001))),
    ("overlap.limit", "needs-buffer-all", "mode is buffer_one: leave it out", "2", of_job(overlap=Overlap(mode="buffer_one", limit=2))),
    ("catchup.window", "range", "window is 1s to 30d, not 30d1ms", "30d1ms", of_job(catchup=CatchUp(window_ms=30 * DAY + 1))),
    ("catchup.window", "range", "not -1h", "-1h", of_job(catchup=CatchUp(window_ms=-3_600_000))),
    ("catchup.limit", "range", "limit is 1 to 1,000, not 0", "0", of_job(catchup=CatchUp(mode="all", limit=0))),
    ("catchup.grace", "range", "grace is 1s to 1d, not 0s", "0s", of_job(catchup=CatchUp(grace_ms=0))),
    ("catchup.window", "order", "window is shorter than grace (30s)", "20s", of_job(catchup=CatchUp(window_ms=20_000))),
    ("auto_pause_after", "range", "auto_pause_after is 1 to", "0", of_job(auto_pause_after=0)),
]  # fmt: skip


@pytest.mark.parametrize(
    "field, rule, message, value, job", TABLE, ids=[f"{row[0]}-{row[1]}-{i}" for i, row in enumerate(TABLE)]
)
def test_each_rule_names_the_field_the_reason_and_what_would_be_right(
    field: str, rule: str, message: str, value: str, job: Job
) -> None:
    [found] = problems(job)
    assert (field, rule) == (found.field, found.rule)
    assert message in found.message
    assert value == found.value


GOOD: list[Job] = [
    JOB,
    of_job(id="0"),
    of_job(id="a" * 128, namespace="A.b_c-9"),
    of_job(labels=(("team", "billing"), ("tier/kind", ""), ("x", "ü" * 128))),
    of_job(description="Zwölf\nZeilen,\r\n\teine eingerückt"),
    of_cron("0 9 * * MON-FRI", "*/5 * * * * *", timezone="America/New_York", gap="shift", fold="both"),
    of_cron("0 0 29 2 *"),
    of_cron("0 0 * * *", starts_at_ms=NEW_YEAR, ends_at_ms=NEW_YEAR + 1),
    of_cron("0 0 * * *", ends_at_ms=NEW_YEAR),
    of_cron("* * * * *", exclude=(Exclusion(cron="* * 24 12 *"), Exclusion(from_ms=0, to_ms=1))),
    of_cron("* * * * *", exclude=(Exclusion(cron="0 0 31 4 *"),)),
    of_cron("* * * * * *", exclude=(Exclusion(cron="* * * 1-11 *"), Exclusion(cron="0-58 * * * *"))),
    of_cron(
        "30 2 * * *", timezone="Europe/Berlin", exclude=(Exclusion(cron="30 2 * * *"),)
    ),  # 03:00 in the gap is left
    of_cron("0 * * * *", exclude=(Exclusion(cron="* * * 1,3-12 *"), Exclusion(cron="* * 1-28 2 *"))),
    of_cron("0 * * * * *", exclude=(Exclusion(from_ms=0, to_ms=NEW_YEAR), Exclusion(cron="0 * * 1-30 * *"))),
    of_cron("0 0 29 2 *", exclude=(Exclusion(cron="* * * * MON-SAT"),)),
    of_cron(
        "0 9 * * *", starts_at_ms=NEW_YEAR, exclude=(Exclusion(from_ms=0, to_ms=NEW_YEAR + 9_000 * DAY),)
    ),
    of_cron("0 0 31 12 *", starts_at_ms=253_402_214_400_000),
    of_schedule(every_ms=3_600_000, exclude=(Exclusion(cron="0 * * * *"),)),  # it counts from the creation
    of_schedule(every_ms=7_000, starts_at_ms=253_402_300_799_000),
    of_schedule(at_ms=NEW_YEAR, exclude=(Exclusion(cron="* * 2 1 *"),)),
    of_schedule(exclude=(Exclusion(cron="* * * * *"),)),  # manual: by trigger only
    of_schedule(every_ms=1_000, anchor_ms=0, spread_ms=DAY),
    of_schedule(every_ms=1_000, after_completion=True, max_runs=1),
    of_schedule(delay_ms=0),
    of_schedule(at_ms=1, timezone="Asia/Kathmandu"),
    of_http(url="http://[2001:db8::1]:8080/x?y=${nominal}&z=${run_id}#top"),
    of_http(url="HTTPS://EXAMPLE.COM/" + "x" * 8_172),
    of_http(url="https://bücher.example/ü"),
    of_http(method="GET", timeout_ms=900_000, success=((200, 299), (409, 409), (599, 599))),
    headers(("Authorization", "Bearer x"), ("X-Day", "${date}\t${job}"), ("Content-Type", "text/csv")),
    of_text("x" * 204_800),
    of_text("$ {nominal} $$ } ${nominal}${run_id}${job}${date}"),
    of_http(body=b"\xff${anything", body_kind="base64"),
    of_http(body=b'{"a":1}', body_kind="json"),
    of_function(name="pkg.module.f-2", arguments=b'{"day": "${nominal}"}'),
    of_retry(max_attempts=1, base_ms=1, factor=1, max_ms=1, jitter=0),
    of_retry(max_attempts=100, backoff="list", delays_ms=(1,) * 99, jitter=1),
    of_retry(backoff="list", delays_ms=(7 * DAY,), base_ms=7_200_000),
    of_job(overlap=Overlap(mode="buffer_all", limit=1_000)),
    of_job(catchup=CatchUp(mode="all", window_ms=30 * DAY, limit=1_000, grace_ms=DAY)),
    of_job(lease_ms=DAY, auto_pause_after=1, when_finished="keep", priority="high"),
]


@pytest.mark.parametrize("job", GOOD)
def test_what_is_right_up_to_its_limits_has_no_problem(job: Job) -> None:
    assert () == problems(job)
    assert () == problems(job, now_ms=0)


def test_all_problems_of_a_definition_are_found_together() -> None:
    job = Job(
        id="",
        schedule=Schedule(cron=("75 * * * *", "* 24 * * *"), timezone="Mars/Base", spread_ms=-1),
        http=HttpTarget(url="x", timeout_ms=0),
        retry=Retry(max_attempts=0, jitter=2),
        lease_ms=0,
    )
    assert {
        "id",
        "schedule.cron[0]",
        "schedule.cron[1]",
        "schedule.timezone",
        "schedule.spread",
        "target.http.url",
        "target.http.timeout",
        "retry.max_attempts",
        "retry.jitter",
        "lease",
    } == {found.field for found in problems(job)}


def test_a_definition_of_large_parts_is_too_large_as_a_whole() -> None:
    job = replace(of_text("x" * 204_800), schedule=Schedule(cron=("0 0 1 1 " + ",".join(["0"] * 446),) * 64))
    assert [Problem(field="", rule="document-size", message="", value="262374 bytes")] == [
        replace(found, message="") for found in problems(job)
    ]


@pytest.mark.parametrize(
    "late_ms, rules",
    [(0, []), (DAY, []), (DAY + 1, ["at-too-old"]), (-DAY, [])],
    ids=["now", "in time", "late", "ahead"],
)
def test_an_instant_further_back_than_the_catch_up_window_is_refused_when_it_is_asked_for(
    late_ms: int, rules: list[str]
) -> None:
    job = of_schedule(at_ms=NOW - late_ms)
    found = problems(job, now_ms=NOW)
    assert rules == [each.rule for each in found]
    assert () == problems(job)
    for each in found:
        assert "schedule.at" == each.field
        assert "further in the past than catchup.window (1d)" in each.message
        assert "trigger the job" in each.message


def test_a_wider_catch_up_window_accepts_an_older_instant() -> None:
    job = replace(of_schedule(at_ms=NOW - 2 * DAY), catchup=CatchUp(window_ms=2 * DAY))
    assert () == problems(job, now_ms=NOW)


@settings(max_examples=max(60, settings().max_examples // 2))
@given(values(Job), st.none() | st.integers(0, 2**42))
def test_any_job_gets_an_answer_and_each_problem_can_be_shown(job: Job, now_ms: int | None) -> None:
    for found in problems(job, now_ms=now_ms):
        assert found.rule and found.rule == found.rule.lower() and " " not in found.rule  # noqa: PT018
        assert found.message
        assert len(found.value) <= 200
    # Asked again, the answer is the same, and asking changed nothing.
    assert problems(job, now_ms=now_ms) == problems(job, now_ms=now_ms)
    assert digest(job) == digest(job)
    assert encode(JobDefinition(namespace="a", id="b", job=job))


_EXTREME = st.sampled_from(
    (None, -(2**63), -1, 0, 1, NEW_YEAR, 253_402_300_799_999, 253_402_300_800_000, 2**63 - 1)
)
_EXTREME_NUMBER = _EXTREME.filter(lambda value: value is not None)


@given(
    st.builds(
        Schedule,
        cron=st.sampled_from(((), ("* * * * *",), ("0 0 31 4 *", "x"))),
        every_ms=_EXTREME,
        at_ms=_EXTREME,
        delay_ms=_EXTREME,
        anchor_ms=_EXTREME,
        after_completion=st.booleans(),
        exclude=st.lists(st.builds(Exclusion, from_ms=_EXTREME, to_ms=_EXTREME), max_size=2).map(tuple),
        spread_ms=_EXTREME_NUMBER,
        starts_at_ms=_EXTREME,
        ends_at_ms=_EXTREME,
        max_runs=_EXTREME,
    ),
    _EXTREME_NUMBER,
    _EXTREME,
)
def test_a_definition_of_extreme_numbers_is_answered_not_failed_on(
    schedule: Schedule, number: int, now_ms: int | None
) -> None:
    job = replace(
        JOB,
        schedule=schedule,
        lease_ms=number,
        http=replace(HTTP, timeout_ms=number, success=((number, number),)),
        retry=Retry(
            max_attempts=number, base_ms=number, max_ms=-number, max_age_ms=number, delays_ms=(number,)
        ),
        catchup=CatchUp(window_ms=number, limit=number, grace_ms=number),
        overlap=Overlap(mode="buffer_all", limit=number),
        auto_pause_after=number,
    )
    assert problems(job, now_ms=now_ms)
