"""The job document: what people write in YAML and JSON, and the Job that it means. One table, three uses.

`parse` reads a document, `render` writes one, `json_schema` describes it. Which fields there are, and what they say,
stands in `tocsin.schemas.layout`. Why this is a table of our own: docs/decisions/003-avro-codec.md.
"""

from collections.abc import Mapping
from functools import cache
from typing import Any, Final

from tocsin.schemas.job import Job, Problem
from tocsin.schemas.kinds import WRONG, JsonSchema, Reading
from tocsin.schemas.layout import DOCUMENT
from tocsin.schemas.problems import problems

SCHEMA_ID: Final = "urn:tocsin:schema:job"

# Rules that say something of a whole whose part was refused already.
_OF_A_WHOLE: Final = frozenset(("required", "one-of", "exclusion", "success", "delays"))


def parse(document: Any) -> tuple[Job | None, tuple[Problem, ...]]:
    """The job that a document means; or None and all that is wrong with it, as far as `problems` can tell, too.

    A job that is returned has no problem of form; whether it may be put in force is what `problems` says.
    `document` is what a JSON or YAML reader makes of the text (dates and datetimes, as YAML has them, included).
    """
    reading = Reading(places=_places())
    job = DOCUMENT.read(document, "", reading)
    if not reading.problems:
        assert job is not WRONG
        made: Job = job
        return made, ()
    found = list(dict.fromkeys(reading.problems))
    if reading.is_enough:
        message = f"there is more wrong with it: these are the first {len(found)} problems"
        return None, (*found, Problem(field="", rule="too-many-problems", message=message))
    if job is not WRONG:
        refused = [each.field for each in found]
        found += [each for each in problems(job) if not _follows(each, refused)]
    return None, tuple(found)


def _follows(later: Problem, refused: list[str]) -> bool:
    """Whether a problem is only there because a field was refused, and so stands at its default."""
    for field in refused:
        if later.field == field or later.field.startswith((f"{field}.", f"{field}[")):
            return True
        if later.rule in _OF_A_WHOLE and field.startswith((f"{later.field}.", f"{later.field}[")):
            return True
    return False


def render(job: Job, full: bool = False) -> dict[str, Any]:
    """The document that means `job`, as JSON has it: what was given, or with `full` the defaults, too."""
    return DOCUMENT.write(job, full)


@cache
def _schema() -> JsonSchema:
    definitions: dict[str, JsonSchema] = {}
    whole = DOCUMENT.full_schema(definitions)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": SCHEMA_ID,
        "title": "Tocsin job",
        "description": "A job: when it runs, what it does, and what happens when that fails.",
        **whole,
        "$defs": definitions,
    }


def json_schema() -> JsonSchema:
    """The document as JSON Schema 2020-12, for editors and OpenAPI. It says the form; `problems` knows more rules."""
    return dict(_schema())


@cache
def _places() -> Mapping[str, str]:
    return DOCUMENT.places()
