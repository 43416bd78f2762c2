"""Everything in one list, by step: what the processes did, and what stood on the log afterwards. For people."""

from tests.sim.evidence import Evidence
from tests.sim.world import START_MS, World
from tocsin.log.port import TopicPartition
from tocsin.schemas import codec
from tocsin.schemas.records import (
    Control,
    DueRun,
    JobDefinition,
    JobEvent,
    Journal,
    RunEvent,
    RunReport,
)


def chronicle(world: World, about: str = "") -> str:
    """The trace with the records of the log between its lines; of records only those that mention `about`."""
    lines = [(step, 0, text) for step, text in zip(world.trace_steps, world.trace, strict=True)]
    evidence = Evidence(world)
    for where in world.log.snapshot():
        if where.topic != world.names.state:
            lines += _records(evidence, where, about)
    return "\n".join(text for _, _, text in sorted(lines, key=lambda line: line[:2]))


def _records(evidence: Evidence, where: TopicPartition, about: str) -> list[tuple[int, int, str]]:
    lines = []
    for each in evidence.of(object, *where):
        text = _shown(each.value)
        if about in text or (isinstance(each.value, Journal) and not about):
            short = where.topic.removeprefix(evidence.world.names.prefix)
            lines.append((each.step, 1, f"        | {short}[{where.partition}]@{each.record.offset} {text}"))
    return lines


def _ms(instant_ms: int) -> str:
    return str(instant_ms - START_MS) if instant_ms > START_MS // 2 else str(instant_ms)


def _shown(value: object) -> str:
    match value:
        case RunEvent(seq=0):
            return (
                f"SKIPPED {value.run_id} to {_ms(value.last_nominal_ms)} x{value.count} {value.reason} "
                f"now {_ms(value.event_ms)}"
            )
        case RunEvent():
            attempts = " ".join(
                f"{a.attempt}/d{a.dispatch}:{a.outcome}@{_ms(a.due_ms)}" for a in value.attempts[-3:]
            )
            return (
                f"RUN {value.run_id} #{_ms(value.seq)} {value.status} {value.reason} r{value.revision} "
                f"due {_ms(value.due_ms)} now {_ms(value.event_ms)} [{attempts}]"
            )
        case JobEvent():
            return (
                f"JOB {value.namespace}/{value.job_id} {value.kind} r{value.revision} "
                f"from {_ms(value.effective_ms)} {value.reason} {value.errors}"
            )
        case DueRun():
            return (
                f"DUE {value.run_id} #{_ms(value.seq)} floor {_ms(value.floor)} d{value.dispatch} a{value.attempt} "
                f"due {_ms(value.due_ms)} deadline {_ms(value.start_deadline_ms)}"
            )
        case Control():
            return (
                f"CONTROL {value.run_id} withdrawn<={value.withdrawn_upto} {value.withdrawn_how} "
                f"settled<={value.settled_upto} claimed d{value.claimed_dispatch} {value.claimed_execution} "
                f"e{value.claimed_epoch}"
            )
        case RunReport():
            return (
                f"REPORT {value.kind} {value.run_id} #{_ms(value.seq)} d{value.dispatch} a{value.attempt} "
                f"{value.execution} e{value.epoch} by {value.worker}"
            )
        case JobDefinition(job=None):
            return f"DELETE {value.namespace}/{value.id}"
        case JobDefinition():
            return f"DEFINE {value.job}"
        case Journal():
            return (
                f"JOURNAL {value.tick} now {_ms(value.now_ms)} W {_ms(value.watermark_ms)} reports "
                f"{_ms(value.reports_through_ms)} o{value.outcomes_offset} c{value.commands_offset} "
                f"j{value.jobs_offset} {value.effects} effects{' released' * value.released}"
                f"{'' if value.fired else ' held'}"
            )
        case codec.CodecError():
            return "?"
        case _:
            return str(value)
