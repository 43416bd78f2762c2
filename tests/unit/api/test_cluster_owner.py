"""What a streams process answers to whom, and what it refuses."""

import asyncio
import json
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from tests.unit.api.owners import SECRET, Part, World, number_of
from tocsin.api.cluster import owner as owner_module
from tocsin.api.cluster import wire
from tocsin.api.cluster.owner import owner_router

KEY = "default/a"
MINE = number_of(KEY)
OTHER = (MINE + 1) % 6


class Served:
    """One owner's app, asked without a network."""

    def __init__(self, secret: str = SECRET) -> None:
        self.world = World(owner={MINE: "a"})
        self.world.add(KEY)
        self.queries = Part(self.world, "a")
        self.app = FastAPI(openapi_url=None)
        self.app.include_router(owner_router(self.queries, lambda: secret, self.queries.owns))

    def ask(self, question: str, fields: Any = None, **request: Any) -> httpx.Response:
        request.setdefault("headers", {wire.SECRET_HEADER: SECRET})
        request.setdefault("content", json.dumps({} if fields is None else fields))
        return asyncio.run(self._ask(question, request))

    async def _ask(self, question: str, request: dict[str, Any]) -> httpx.Response:
        method = request.pop("method", "POST")
        transport = httpx.ASGITransport(self.app)
        async with httpx.AsyncClient(transport=transport, base_url="http://owner") as client:
            return await client.request(method, question, **request)


@pytest.fixture
def served() -> Served:
    return Served()


JOB = {"key": KEY, "partition": MINE}


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {wire.SECRET_HEADER: ""},
        {wire.SECRET_HEADER: "wrong"},
        {wire.SECRET_HEADER: SECRET + " "[:0] + "x"},
        {wire.SECRET_HEADER: SECRET[:-1]},
        {"authorization": f"Bearer {SECRET}"},
    ],
    ids=["none", "empty", "wrong", "longer", "shorter", "elsewhere"],
)
def test_whoever_does_not_show_the_secret_learns_nothing(served: Served, headers: dict[str, str]) -> None:
    for path in ("/cluster/1/job", "/cluster/1/nothing", "/cluster/9/job", "/cluster/"):
        for content in (json.dumps(JOB), "no JSON", "x" * 600_000):
            answer = served.ask(path, headers=headers, content=content)
            assert (401, b"") == (answer.status_code, answer.content)
    assert 401 == served.ask("/cluster/1/job", headers=headers, method="GET").status_code
    assert [] == served.queries.asked


def test_a_process_that_knows_no_secret_answers_nobody() -> None:
    served = Served(secret="")
    for headers in ({}, {wire.SECRET_HEADER: ""}, {wire.SECRET_HEADER: SECRET}):
        assert 401 == served.ask("/cluster/1/job", JOB, headers=headers).status_code


def test_a_secret_of_other_letters_is_compared_as_it_was_sent() -> None:
    served = Served(secret="gehäim")
    for given, status in (("gehäim", 200), ("gehaim", 401)):
        headers = {wire.SECRET_HEADER.encode(): given.encode()}
        assert status == served.ask("/cluster/1/job", JOB, headers=headers).status_code


def test_a_question_is_answered_from_what_is_owned(served: Served) -> None:
    answer = served.ask("/cluster/1/job", JOB)
    assert (200, wire.CONTENT_TYPE) == (answer.status_code, answer.headers["content-type"])
    _, blobs = wire.unpack(answer.content)
    assert [served.world.jobs[KEY]] == [wire.job_of(blob) for blob in blobs]


@pytest.mark.parametrize(
    "question, fields",
    [
        ("job", {"key": KEY}),
        ("jobs-by-key", {"keys": [KEY]}),
        ("runs-of", {"key": KEY, "limit": 5}),
        ("run", {"run_id": f"{KEY}!t.one"}),
        ("applied", {"topic": "tocsin.jobs", "offsets": [1], "within_ms": 10_000}),
    ],
)
def test_a_question_about_another_partition_is_misdirected(
    served: Served, question: str, fields: dict[str, Any]
) -> None:
    answer = served.ask(f"/cluster/1/{question}", {**fields, "partition": OTHER})
    assert 421 == answer.status_code
    assert [OTHER] == [each["partition"] for each in answer.json()["missing"]]


def test_a_question_about_a_partition_that_is_being_restored_says_how_far_it_is(served: Served) -> None:
    served.world.restoring.add(MINE)
    for question, fields in (("job", JOB), ("jobs-by-key", {"keys": [KEY], "partition": MINE})):
        answer = served.ask(f"/cluster/1/{question}", fields)
        assert (503, [("restoring", 3, 12)]) == (
            answer.status_code,
            [
                (each["reason"], each["restore_done"], each["restore_total"])
                for each in answer.json()["missing"]
            ],
        )


def test_a_list_names_what_is_not_here(served: Served) -> None:
    answer = served.ask("/cluster/1/jobs", {"limit": 5, "partitions": [MINE, OTHER]})
    page = wire.unpack_page(answer.content, wire.job_of)
    assert ([KEY], [(OTHER, "no-owner")]) == (
        [view.key for view in page.items],
        [(each.partition, each.reason) for each in page.missing],
    )


@pytest.mark.parametrize("path", ["/cluster/2/job", "/cluster/1/nothing", "/cluster/1/", "/cluster/"])
def test_what_this_release_does_not_speak_is_said_with_what_it_does(served: Served, path: str) -> None:
    answer = served.ask(path, JOB)
    assert (501, {"versions": [1]}) == (answer.status_code, answer.json())


WAIT = {"topic": "tocsin.jobs", "partition": MINE, "offsets": [1], "within_ms": 10}


@pytest.mark.parametrize(
    "question, fields",
    [
        ("job", []),
        ("job", {"key": KEY}),
        ("job", {**JOB, "partition": True}),
        ("job", {**JOB, "partition": -1}),
        ("job", {**JOB, "key": 7}),
        ("jobs-by-key", {"partition": MINE}),
        ("jobs-by-key", {"partition": MINE, "keys": [KEY] * (wire.KEYS_MAX + 1)}),
        ("jobs-by-key", {"partition": MINE, "keys": [None]}),
        ("jobs", {"partitions": [MINE]}),
        ("jobs", {"limit": 0, "partitions": [MINE]}),
        ("jobs", {"limit": wire.ITEMS_MAX + 1, "partitions": [MINE]}),
        ("jobs", {"limit": 5}),
        ("jobs", {"limit": 5, "partitions": ["0"]}),
        ("jobs", {"limit": 5, "partitions": [MINE], "labels": ["a"]}),
        ("applied", {**WAIT, "offsets": []}),
        ("applied", {**WAIT, "offsets": [-1]}),
        ("applied", {**WAIT, "offsets": list(range(wire.OFFSETS_MAX + 1))}),
        ("applied", {**WAIT, "within_ms": None}),
    ],
)
def test_a_question_that_is_none_is_refused(served: Served, question: str, fields: Any) -> None:
    answer = served.ask(f"/cluster/1/{question}", fields)
    assert 400 == answer.status_code
    assert answer.json()["detail"]


@pytest.mark.parametrize("content", [b"{", b"\xff", b"[" * 100_000, b'{"key": "' + b"a" * 600_000 + b'"}'])
def test_a_body_that_is_no_question_is_refused(served: Served, content: bytes) -> None:
    assert 400 == served.ask("/cluster/1/job", content=content).status_code


def test_a_cursor_that_no_page_gave_is_refused(served: Served) -> None:
    answer = served.ask("/cluster/1/jobs", {"limit": 5, "partitions": [MINE], "cursor": "!"})
    assert (422, {"cursor": "invalid"}) == (answer.status_code, answer.json())


# --- waiting -------------------------------------------------------------------------------------------------------------


def test_a_wait_ends_with_the_highest_offset_that_is_applied(served: Served) -> None:
    served.queries.waiters.applied("tocsin.jobs", MINE, 20)
    answer = served.ask("/cluster/1/applied", {**WAIT, "offsets": [3, 9, 30], "within_ms": 10_000})
    assert {"through": 9} == wire.unpack(answer.content)[0]


def test_a_wait_that_is_over_ends_with_nothing_and_is_forgotten(served: Served) -> None:
    answer = served.ask("/cluster/1/applied", WAIT)
    assert {"through": -1} == wire.unpack(answer.content)[0]
    served.queries.waiters.applied("tocsin.jobs", MINE, 1)
    assert not served.queries.waiters.any


def test_who_waits_learns_that_the_partition_has_moved(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owner_module, "OWNED_EVERY_S", 0.01)

    class Leaving(dict[int, str]):
        """The second look finds it gone."""

        looks = 0

        def items(self) -> Any:
            Leaving.looks += 1
            return super().items() if Leaving.looks == 1 else {}.items()

    served.world.owner = Leaving(served.world.owner)
    assert 421 == served.ask("/cluster/1/applied", {**WAIT, "within_ms": 10_000}).status_code
    served.queries.waiters.applied("tocsin.jobs", MINE, 1)
    assert not served.queries.waiters.any


def test_a_processor_that_has_ended_keeps_nobody_waiting(served: Served) -> None:
    served.queries.waiters.fail(RuntimeError("the stream processor stopped"))
    answer = served.ask("/cluster/1/applied", {**WAIT, "within_ms": 10_000})
    assert (503, ["moving"]) == (answer.status_code, [each["reason"] for each in answer.json()["missing"]])


def test_more_than_may_wait_are_refused(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(owner_module, "POLLS_MAX", 0)
    assert (503, {"busy": True}) == _of(served.ask("/cluster/1/applied", WAIT))
    monkeypatch.setattr(owner_module, "SCANS_WAITING_MAX", 0)
    assert (503, {"busy": True}) == _of(served.ask("/cluster/1/health", {}))


def _of(answer: httpx.Response) -> tuple[int, Any]:
    return answer.status_code, answer.json()
