"""`tocsin jobs apply`: files in, one line for each job out, and nothing half-applied."""

import contextlib
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest

from tests.unit.api.fakes import NAMES, FakeNode, fake_node
from tests.unit.cli.conftest import Served, serve, tocsin
from tocsin.api.services import WorkerSnapshot
from tocsin.cli.node import Node
from tocsin.cli.queues import warn_of_idle
from tocsin.schemas.records import Queue

EXAMPLE = Path(__file__).parents[3] / "examples" / "hello.yaml"

GOOD = """\
id: {id}
schedule: {{every: {every}}}
target:
  http: {{url: "http://127.0.0.1:8790/ok"}}
"""


def good(job_id: str, every: str = "5s") -> str:
    return GOOD.format(id=job_id, every=every)


def test_the_example_applies_and_applies_again_without_a_change(served: Served) -> None:
    first = served.spawned("jobs", "apply", "-f", str(EXAMPLE))
    names = ["tick", "every-five", "once", "moody", "doomed"]
    assert (0, [f"created default/{name}" for name in names]) == (first.code, first.out.splitlines())
    assert "5 created" in first.err
    again = served.spawned("jobs", "apply", "-f", str(EXAMPLE))
    assert (0, [f"unchanged default/{name}" for name in names]) == (again.code, again.out.splitlines())


def test_created_changed_and_unchanged_are_told_apart(served: Served, tmp_path: Path) -> None:
    file = tmp_path / "jobs.yaml"
    file.write_text("---\n".join([good("a"), good("b")]))
    served.run("jobs", "apply", "-f", str(file))
    file.write_text("---\n".join([good("a"), good("b", "6s"), good("c")]))
    done = served.run("jobs", "apply", "-f", str(file))
    assert ["unchanged default/a", "changed default/b", "created default/c"] == done.out.splitlines()
    assert "1 changed, 1 created, 1 unchanged" in done.err


def test_one_wrong_document_keeps_all_files_from_being_applied(served: Served, tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(good("a"))
    (tmp_path / "b.yaml").write_text(
        "# comment\n"
        + good("b")
        + "---\nid: c\nschedule: {cron: 75 * * * *}\n"
        + "target: {http: {url: 'http://127.0.0.1/'}}\n"
    )
    done = served.run("jobs", "apply", "-f", str(tmp_path))
    assert (2, "") == (done.code, done.out)
    assert f"{tmp_path / 'b.yaml'}:8: default/c: schedule.cron[0]: " in done.err
    assert "nothing was applied" in done.err
    assert "--partial" in done.err
    assert [] == served.node.records(NAMES.jobs)


def test_with_partial_the_good_documents_are_applied_and_the_exit_code_tells(
    served: Served, tmp_path: Path
) -> None:
    file = tmp_path / "jobs.yaml"
    file.write_text(good("a") + "---\nid: b\n---\n" + good("c"))
    done = served.run("jobs", "apply", "--partial", "-f", str(file))
    assert (2, ["created default/a", "created default/c"]) == (done.code, done.out.splitlines())
    assert "default/b: target" in done.err


def test_a_key_in_two_files_is_named_with_both_places(served: Served, tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(good("a"))
    (tmp_path / "b.yaml").write_text("---\n" + good("a"))
    done = served.run("jobs", "apply", "-f", str(tmp_path / "a.yaml"), "-f", str(tmp_path / "b.yaml"))
    assert 2 == done.code
    assert (
        f"{tmp_path / 'b.yaml'}:2: default/a: id: default/a is also defined at {tmp_path / 'a.yaml'}:1"
        in done.err
    )


def test_an_unknown_queue_is_known_before_anything_is_sent(served: Served) -> None:
    done = served.run("jobs", "apply", "-f", "-", stdin=good("a") + "queue: reports\n")
    assert 2 == done.code
    assert "tocsin queues create reports --kind http" in done.err
    assert [] == served.node.records(NAMES.jobs)


def test_a_dry_run_says_what_would_be_and_changes_nothing(served: Served) -> None:
    done = served.run("jobs", "apply", "--dry-run", "-f", "-", stdin=good("a"))
    assert (0, "would be created default/a\n") == (done.code, done.out)
    assert [] == served.node.records(NAMES.jobs)


@pytest.mark.parametrize(
    "text",
    [
        good("a") + "---\n" + good("b"),
        "- " + good("a").replace("\n", "\n  ") + "\n- " + good("b").replace("\n", "\n  "),
        json.dumps([{"id": i, "target": {"http": {"url": "http://127.0.0.1:8790/"}}} for i in "ab"]),
        "\n".join(json.dumps({"id": i, "target": {"http": {"url": "http://127.0.0.1:8790/"}}}) for i in "ab"),
    ],
    ids=["YAML documents", "a YAML list", "a JSON list", "NDJSON"],
)
def test_standard_input_may_be_yaml_json_or_ndjson(served: Served, text: str) -> None:
    done = served.run("jobs", "apply", "-f", "-", stdin=text)
    assert (0, ["created default/a", "created default/b"]) == (done.code, done.out.splitlines())


def test_a_folder_is_read_in_order_and_other_files_are_left_alone(served: Served, tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "b.yml").write_text(good("b"))
    (tmp_path / "a.json").write_text(
        json.dumps({"id": "a", "target": {"http": {"url": "http://127.0.0.1:8790/"}}})
    )
    (tmp_path / "sub" / "c.ndjson").write_text(
        '{"id": "c", "target": {"http": {"url": "http://127.0.0.1:8790/"}}}\n'
    )
    (tmp_path / "notes.txt").write_text("not a job")
    done = served.run("jobs", "apply", "-f", str(tmp_path))
    assert ["created default/a", "created default/b", "created default/c"] == done.out.splitlines()


def test_more_documents_than_a_batch_holds_go_in_several(served: Served, tmp_path: Path) -> None:
    file = tmp_path / "many.ndjson"
    file.write_text(
        "".join(
            f'{{"id":"j{n}","target":{{"http":{{"url":"http://127.0.0.1:8790/"}}}}}}\n' for n in range(10_001)
        )
    )
    done = served.run("jobs", "apply", "-q", "-f", str(file))
    assert (0, "") == (done.code, done.out)
    assert "10001 created" in done.err
    assert 10_001 == len(served.node.records(NAMES.jobs))


def test_json_lists_each_document_with_its_place(served: Served) -> None:
    done = served.run("jobs", "apply", "--json", "--partial", "-f", "-", stdin=good("a") + "---\nid: b\n")
    assert 2 == done.code
    items = done.json["items"]
    assert [("default/a", "created", "standard input:1"), ("default/b", "invalid", "standard input:6")] == [
        (item["key"], item["result"], item["place"]) for item in items
    ]
    assert "target" == items[1]["errors"][0]["field"]


@pytest.mark.parametrize(
    "text, message",
    [
        ("id: a\nid: b\n", "standard input:2: the key 'id' is given twice"),
        ("id: a\n  b: [c\n", "standard input:2: "),
        ('{"id": "a", "id": "b"}', "'id' is given twice"),
        ("", "no job documents"),
        ("# nothing\n---\n", "no job documents"),
        ("!!python/object:os.system {}", "standard input:1: "),
    ],
)
def test_what_cannot_be_read_is_named_with_its_line(served: Served, text: str, message: str) -> None:
    done = served.run("jobs", "apply", "-f", "-", stdin=text)
    assert 2 == done.code
    assert message in done.err
    assert "Traceback" not in done.err


def test_yaml_takes_times_and_words_as_they_are_written(served: Served) -> None:
    text = good("a") + "labels: {answer: no, at: 12:30, day: 2026-12-31}\n"
    assert 0 == served.run("jobs", "apply", "-f", "-", stdin=text).code
    [record] = served.node.records(NAMES.jobs)
    assert (("answer", "no"), ("at", "12:30"), ("day", "2026-12-31")) == record.job.labels


def test_a_file_that_is_not_there_is_named(served: Served, tmp_path: Path) -> None:
    done = served.run("jobs", "apply", "-f", str(tmp_path / "nothing.yaml"))
    assert (2, f"{tmp_path / 'nothing.yaml'}: No such file or directory\n") == (done.code, done.err)
    empty = served.run("jobs", "apply", "-f", str(tmp_path))
    assert 2 == empty.code
    assert "no .json" in empty.err


def test_without_a_node_it_says_how_to_start_one() -> None:
    done = tocsin("jobs", "apply", "-f", "-", "--url", "http://127.0.0.1:1", stdin=good("a"))
    assert (1, "") == (done.code, done.out)
    assert "tocsin up" in done.err
    assert "TOCSIN_URL" in done.err


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (
            "schedule:\n  cron: * * * * *\n",
            '3: a cron expression must stand in quotes here: cron: "* * * * *"',
        ),
        (
            "schedule: {cron: */5 * * * *}  # often\n",
            '2: a cron expression must stand in quotes here: cron: "*/5',
        ),
        ("schedule: {cron: * 9,10 * * *, timezone: UTC}\n", 'in quotes here: cron: "* 9,10 * * *"\n'),
        ("schedule:\n  cron: @daily # at night\n", 'in quotes here: cron: "@daily"\n'),
        ("schedule:\n  cron:\n    - * 9 * * *\n", "4: a text that begins with * must stand in quotes"),
        ("schedule:\n\tcron: '* * * * *'\n", "3: the line is indented by a tab; YAML takes spaces only"),
    ],
)
def test_what_people_often_get_wrong_in_yaml_is_told_as_what_to_write(
    served: Served, lines: str, said: str
) -> None:
    done = served.run("jobs", "apply", "-f", "-", stdin="id: a\n" + lines)
    assert (2, "") == (done.code, done.out)
    assert said in done.err


def test_an_error_stands_at_the_line_of_its_field(served: Served) -> None:
    document = """\
- id: fine
  target: {http: {url: "http://127.0.0.1/"}}
- # another
  target:
    http:
      url: "http://127.0.0.1/"
      method: FETCH
  schedule:
    cron:
      - "0 9 * * *"
      - "75 9 * * *"
"""
    done = served.run("jobs", "apply", "-f", "-", stdin=document)
    assert 2 == done.code
    places = {tuple(line.split(": ")[:3]) for line in done.err.splitlines()[:3]}
    assert {
        ("standard input:4", "(no id)", "id"),
        ("standard input:7", "(no id)", "target.http.method"),
        ("standard input:11", "(no id)", "schedule.cron[1]"),
    } == places
    assert "1 of 2 documents are not valid; nothing was applied. --partial applies the others." in done.err


def test_partial_is_offered_only_where_there_are_others(served: Served) -> None:
    done = served.run("jobs", "apply", "-f", "-", stdin="id: a\n")
    assert done.err.endswith("The document is not valid; nothing was applied.\n")
    done = served.run("jobs", "apply", "-f", "-", stdin="id: a\n---\nid: b\n")
    assert done.err.endswith("None of the 2 documents is valid; nothing was applied.\n")


FUNCTION = "id: f\nqueue: functions\ntarget: {function: {name: send_invoices}}\n"
NO_WORKER = "queue functions has no worker here: start `tocsin up --functions MODULE`\n"


def test_a_job_whose_queue_nobody_reads_is_told_of_when_it_is_applied_and_triggered(served: Served) -> None:
    applied = served.run("jobs", "apply", "-f", "-", stdin=FUNCTION)
    assert (0, "created default/f\n", NO_WORKER) == (applied.code, applied.out, applied.err)
    triggered = served.run("jobs", "trigger", "f", "--id", "t")
    assert (0, "triggered default/f!t.t\n", NO_WORKER) == (triggered.code, triggered.out, triggered.err)
    assert "" == served.run("jobs", "apply", "-q", "-f", "-", stdin=FUNCTION).err


def test_a_queue_that_a_worker_reads_is_not_spoken_of() -> None:
    worker = WorkerSnapshot(
        queue="functions",
        live=1,
        in_flight=0,
        held=0,
        started_total=0,
        lateness_sum_ms=0,
        lateness_buckets={},
    )
    with fake_node(workers=[worker]) as node:
        for served in serve(node):
            applied = served.run("jobs", "apply", "-f", "-", stdin=FUNCTION)
            assert (0, "") == (applied.code, applied.err)
            assert "" == served.run("jobs", "trigger", "f").err


def warned(node: FakeNode, queues: set[str]) -> str:
    said = io.StringIO()
    for served in serve(node):
        with Node(served.url) as client, contextlib.redirect_stderr(said):
            warn_of_idle(client, queues)
    return said.getvalue()


@pytest.mark.parametrize(
    ("queue", "kind", "start"),
    [
        ("functions", "function", "worker --functions MODULE"),
        ("default", "http", "worker"),
        ("reports", "http", "worker --queue reports"),
        ("mine", "function", "worker --queue mine --functions MODULE"),
    ],
)
def test_on_a_kafka_a_queue_that_nobody_reads_is_told_of_with_the_worker_to_start(
    monkeypatch: pytest.MonkeyPatch, queue: str, kind: Literal["http", "function"], start: str
) -> None:
    monkeypatch.setattr("tocsin.cli.queues.LOOK_EVERY_S", 0.0)
    with fake_node(fires=False) as node:
        node.config.queues[queue] = Queue(name=queue, kind=kind, partitions=1)
        said = warned(node, {queue})
    assert f"queue {queue} has no worker here: start `tocsin {start}`\n" == said


def test_on_a_kafka_a_worker_that_was_not_counted_yet_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tocsin.cli.queues.LOOK_EVERY_S", 0.0)
    looks = []

    class Counted:
        """Nobody at the first look, one at the second."""

        def __iter__(self) -> Iterator[WorkerSnapshot]:
            looks.append(1)
            return iter([WorkerSnapshot(queue="default", live=len(looks) - 1, elsewhere=True)])

    with fake_node(workers=Counted(), fires=False) as node:
        said = warned(node, {"default"})
    assert (2, "") == (len(looks), said)
