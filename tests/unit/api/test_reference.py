"""The OpenAPI document, its examples, and /docs."""

import json
import re
from typing import Any

import pytest

from tests.unit.api.fakes import HELLO, FakeNode
from tocsin.api import examples, openapi
from tocsin.schemas.document import parse
from tocsin.schemas.problems import problems


def test_the_root_leads_to_the_reference_which_asks_nobody_for_anything(node: FakeNode) -> None:
    root = node.ask("GET", "/")
    assert (307, "/docs") == (root.status_code, root.headers["location"])
    page = node.ask("GET", "/docs")
    assert 200 == page.status_code
    assert page.headers["content-security-policy"].startswith("default-src 'none'")
    assert "<script" not in page.text
    assert not re.search(r'(?:src|href)="(?!#|/)', page.text)
    assert "url(" not in page.text
    for operation in ("defineJob", "defineJobs", "cancelRun", "redriveDeadLetter", "createQueue"):
        assert f'id="{operation}"' in page.text
    ids = re.findall(r'id="(\w+)"', page.text)
    assert len(set(ids)) == len(ids)


def test_every_operation_is_documented_with_examples_of_what_it_takes_and_gives(node: FakeNode) -> None:
    document = node.ask("GET", "/openapi.json").json()
    assert document["openapi"].startswith("3.1")
    operations = [
        (method, path, operation)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    ]
    assert len(operations) >= 20
    for method, path, operation in operations:
        assert operation["description"], path
        contents = [r["content"] for r in operation["responses"].values()]
        if "requestBody" in operation:
            contents.append(operation["requestBody"]["content"])
        for content in contents:
            for described in content.values():
                assert "example" in described, (method, path)
                assert "schema" in described, (method, path)


def test_every_reference_of_the_openapi_document_leads_somewhere(node: FakeNode) -> None:
    text = node.ask("GET", "/openapi.json").text
    schemas = json.loads(text)["components"]["schemas"]
    used = set(re.findall(r'"\$ref": ?"#/components/schemas/(\w+)"', text))
    assert used
    assert used <= schemas.keys()
    assert '"#/$defs/' not in text


@pytest.mark.parametrize("name", sorted(examples.BODIES))
def test_an_example_has_the_fields_that_its_schema_names(name: str) -> None:
    schema_name, example = examples.BODIES[name]
    schema = openapi.SCHEMAS.get(schema_name)
    if schema is None:
        assert "Job" == schema_name
        return
    for value in example if isinstance(example, list) else [example]:
        _fits(value, schema)


def _fits(value: Any, schema: dict[str, Any]) -> None:
    """As much of JSON Schema as ours use."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        if name in openapi.SCHEMAS:
            _fits(value, openapi.SCHEMAS[name])
        return
    if "anyOf" in schema:
        if value is not None:
            _fits(value, schema["anyOf"][0])
        return
    types: dict[str, Any] = {
        "string": str,
        "integer": int,
        "number": (int, float),
        "boolean": bool,
        "object": dict,
        "array": list,
        "null": type(None),
    }
    names = schema.get("type", [])
    allowed = [types[name] for name in ([names] if isinstance(names, str) else names)]
    assert not allowed or isinstance(value, tuple(allowed)), (value, schema)
    assert value in schema.get("enum", [value])
    if isinstance(value, dict) and "properties" in schema:
        assert set(schema.get("required", ())) <= value.keys()
        assert value.keys() <= schema["properties"].keys()
        for name, item in value.items():
            _fits(item, schema["properties"][name])
    if isinstance(value, list):
        for item in value:
            _fits(item, schema["items"])


def test_the_job_documents_among_the_examples_are_valid() -> None:
    documents = [{"id": "a", **examples.BODIES["job"][1]}, *examples.BODIES["batch"][1]]
    documents.append(examples.JOB_VIEW["definition"])
    for document in documents:
        job, misread = parse(document)
        assert () == misread
        assert job is not None
        assert () == problems(job)


def test_answers_have_the_fields_that_their_schemas_name(node: FakeNode) -> None:
    node.put("billing/a", {**HELLO, "description": "x"})
    node.state.put_run("billing/a@20260101T000000.000Z", "succeeded")
    node.state.put_dead("billing/a@20260101T000001.000Z")
    asked = [
        ("GET", "/v1/jobs/billing/a", "JobView"),
        ("GET", "/v1/jobs", "JobList"),
        ("GET", "/v1/runs", "RunList"),
        ("GET", "/v1/jobs/billing/a/runs", "RunList"),
        ("GET", "/v1/dead-letters", "DeadLetterList"),
        ("GET", "/v1/queues", "QueueList"),
        ("GET", "/readyz", "Ready"),
        ("POST", "/v1/jobs/billing/a/trigger", "Triggered"),
        ("POST", "/v1/jobs/billing/a/trigger?wait=applied", "Triggered"),
        ("POST", "/v1/jobs/billing/a/pause?wait=applied", "CommandApplied"),
        ("POST", "/v1/dead-letters/billing/a@20260101T000001.000Z/redrive?wait=applied", "RunCommand"),
        ("DELETE", "/v1/jobs/billing/a?wait=applied", "Written"),
        ("GET", "/v1/jobs/billing/a", "Problem"),
    ]
    for method, path, schema in asked:
        _fits(node.ask(method, path).json(), openapi.SCHEMAS[schema])


def test_the_schema_of_a_job_is_published_for_editors(node: FakeNode) -> None:
    answer = node.ask("GET", "/v1/schema/job.json")
    assert "application/schema+json" == answer.headers["content-type"]
    assert "target" in answer.json()["properties"]
