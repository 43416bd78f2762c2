"""/docs: the API reference as one page, rendered here from the OpenAPI document.

FastAPI's own page loads Swagger UI from a content network, so it stays empty where there is none; the packages that ship
those scripts weigh megabytes and have not kept up with OpenAPI 3.1. A page of text with a curl command for each operation
needs neither scripts nor a request to anybody.
"""

import json
import shlex
from functools import cache
from typing import Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined, Template
from markupsafe import Markup, escape

METHODS: Final = ("put", "get", "post", "delete")
PATH_EXAMPLES: Final = {"{rest}": "send-invoices@20260309T080000.000Z"}


def reference(document: dict[str, Any]) -> str:
    sections = [{**tag, "operations": _operations(document, tag["name"])} for tag in document.get("tags", ())]
    return _template().render(
        info=document["info"], sections=sections, job_schema=_json(_job_schemas(document))
    )


@cache
def _template() -> Template:
    environment = Environment(
        loader=PackageLoader("tocsin.api"), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    environment.filters["prose"] = _prose
    return environment.get_template("reference.html")


def _prose(text: str) -> Markup:
    """Paragraphs, and `code` in backticks: all the markup that our descriptions use."""
    paragraphs = []
    for paragraph in text.split("\n\n"):
        parts = [escape(part) for part in paragraph.replace("\n", " ").split("`")]
        paragraphs.append(
            "<p>"
            + "".join(f"<code>{part}</code>" if i % 2 else part for i, part in enumerate(parts))
            + "</p>"
        )
    return Markup("".join(paragraphs))  # noqa: S704 - each part was escaped above


def _operations(document: dict[str, Any], tag: str) -> list[dict[str, Any]]:
    found = []
    for path, methods in document["paths"].items():
        for method in METHODS:
            operation = methods.get(method)
            if operation is not None and tag in operation.get("tags", ()):
                found.append(_operation(path, method, operation))
    return found


def _operation(path: str, method: str, operation: dict[str, Any]) -> dict[str, Any]:
    body, media_type = _example(operation.get("requestBody", {}))
    responses = []
    for status, response in operation["responses"].items():
        text, _ = _example(response)
        responses.append({"status": status, "description": response["description"], "example": text})
    parameters = [
        {
            "name": parameter["name"],
            "where": parameter["in"],
            "required": parameter.get("required", False),
            "description": parameter.get("description", ""),
            "schema": _short(parameter.get("schema", {})),
        }
        for parameter in operation.get("parameters", ())
    ]
    return {
        "id": operation["operationId"],
        "method": method.upper(),
        "path": path,
        "description": operation.get("description") or operation.get("summary", ""),
        "parameters": parameters,
        "body": body,
        "curl": _curl(path, method, operation, body, media_type),
        "responses": responses,
    }


def _example(holder: dict[str, Any]) -> tuple[str, str]:
    for media_type, content in holder.get("content", {}).items():
        if "example" in content:
            example = content["example"]
            if "ndjson" in media_type:
                return "\n".join(json.dumps(line, ensure_ascii=False) for line in example), media_type
            return _json(example), media_type
    return "", ""


def _json(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False)


def _short(schema: dict[str, Any]) -> str:
    """A parameter's schema in a few words."""
    if "anyOf" in schema:
        return " or ".join(_short(each) for each in schema["anyOf"] if each.get("type") != "null")
    if "enum" in schema:
        return " | ".join(str(value) or '""' for value in schema["enum"])
    text = str(schema.get("type", ""))
    if "default" in schema and schema["default"] not in ("", []):
        text += f", default {json.dumps(schema['default'])}"
    return text


def _curl(path: str, method: str, operation: dict[str, Any], body: str, media_type: str) -> str:
    for name, example in PATH_EXAMPLES.items():
        path = path.replace(name, example)
    for parameter in operation.get("parameters", ()):
        examples = parameter.get("schema", {}).get("examples") or parameter.get("examples") or ()
        if parameter["in"] == "path" and examples:
            path = path.replace(f"{{{parameter['name']}}}", str(examples[0]))
    parts = ["curl"]
    if method != "get":
        parts += ["-X", method.upper()]
    parts.append(shlex.quote(f"http://127.0.0.1:8787{path}"))
    if body:
        parts += ["-H", shlex.quote(f"content-type: {media_type}"), "--data-binary"]
        if "ndjson" in media_type:
            parts.append("@jobs.ndjson")
        else:
            parts.append(shlex.quote(json.dumps(json.loads(body), ensure_ascii=False)))
    return " ".join(parts)


def _job_schemas(document: dict[str, Any]) -> dict[str, Any]:
    schemas = document["components"]["schemas"]
    return {name: schema for name, schema in schemas.items() if _is_part_of_job(name, schemas)}


def _is_part_of_job(name: str, schemas: dict[str, Any]) -> bool:
    return name == "Job" or f"#/components/schemas/{name}" in json.dumps(schemas["Job"])
