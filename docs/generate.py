"""Writes what docs/ takes from the code (`make docs`). A test fails while a file differs from what this would write."""

from pathlib import Path

from tocsin.streams.lifecycle import diagram

HERE = Path(__file__).parent

LIFECYCLE = """\
# The life of a run

Generated from `tocsin/streams/lifecycle.py` by `make docs`; every transition is in that table. An event that it does not
allow changes nothing.

```mermaid
{diagram}```

| status | a run that |
|---|---|
| undecided | has no due record: it was withdrawn before it began, or waits for what has to be known first |
| scheduled | was dispatched, and is not known to have begun |
| running | was claimed by a worker, under a lease |
| retrying | failed, or was lost, and waits for its next attempt |
| buffered | waits for the job's earlier runs to end |
| waiting | waits for the run that it replaces to end |
| superseded | gave way to a later occurrence before its retry |
| skipped | was withdrawn, and nothing runs it any more |
| succeeded, failed, cancelled | is over; a failed one is a dead letter |
"""


def generated() -> dict[Path, str]:
    """Each file with its content."""
    return {HERE / "run-lifecycle.md": LIFECYCLE.format(diagram=diagram())}


if __name__ == "__main__":
    for path, text in generated().items():
        path.write_text(text)
