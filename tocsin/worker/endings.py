"""How a fetched record ends here: finished in silence, dropped, expired, or with its execution's final report."""

from functools import partial

from tocsin.schemas.records import DueRun, ReportKind, RunReport
from tocsin.worker.clock_offset import ClockOffset
from tocsin.worker.config import CoreConfig
from tocsin.worker.execution import ERROR_CHARACTERS_MAX, Outcome
from tocsin.worker.holding import Held, Holding
from tocsin.worker.metrics import WorkerMetrics
from tocsin.worker.reports import Reports
from tocsin.worker.rules import WorkerRules


class Endings:
    """The one place where a record is finished."""

    def __init__(
        self,
        config: CoreConfig,
        rules: WorkerRules,
        holding: Holding,
        reports: Reports,
        clock_offset: ClockOffset,
        metrics: WorkerMetrics,
    ) -> None:
        self._worker = config.worker
        self._rules = rules
        self._holding = holding
        self._reports = reports
        self._clock_offset = clock_offset
        self._metrics = metrics

    # --- without a report ---------------------------------------------------------------------------------------------

    def finish_silently(self, held: Held) -> None:
        """P8 (settled elsewhere) or W7 (superseded): nobody waits for a report."""
        self._metrics.finished_silently += 1
        self.finish(held)

    def finish(self, held: Held) -> None:
        """Nothing is left to be done: its offset may be committed, unless the partition was lost meanwhile."""
        self.finish_offset(held)
        self._holding.remove(held)

    def finish_offset(self, held: Held) -> None:
        held.assignment.lane(held.lane).tracker.finish(held.offset)

    def forget(self, held: Held) -> None:
        """Its partition was lost: whoever owns it now fetches the record again."""
        self._holding.remove(held)

    # --- never begun --------------------------------------------------------------------------------------------------

    def drop(self, held: Held) -> None:
        """A withdrawal covers a record that has not begun (W1: always with a report)."""
        self._metrics.dropped += 1
        self._report_unstarted(held, "dropped")

    def expire(self, held: Held) -> None:
        """Its start deadline has passed before it could begin."""
        self._metrics.expired += 1
        self._report_unstarted(held, "expired")

    def _report_unstarted(self, held: Held, kind: ReportKind) -> None:
        self._holding.take(held, "reporting")
        assignment = held.assignment
        report = self._report(kind, held.run, epoch=assignment.epoch)
        self.report_after_commit(held, report, assignment.commits_sent + 1)

    # --- reports that end the dispatch ----------------------------------------------------------------------------------

    def report_after_commit(self, held: Held, report: RunReport, commit: int) -> None:
        """W4: only an owner may send it, and an accepted commit sent after its reason was read says that we are."""
        self._holding.take(held, "reporting")
        if not self._rules.w4:
            self.report(held, report)
        elif held.assignment.alive:
            held.assignment.after_commit(commit, partial(self.report, held, report))
        else:
            self.forget(held)

    def report(self, held: Held, report: RunReport) -> None:
        """W2: the record is finished when the log has acknowledged its report."""
        if held.state == "done":
            return  # settled while it waited for a commit (W4)
        self._holding.take(held, "reporting")
        if not self._rules.w2:
            self.finish(held)
        self._reports.send(
            report, acknowledged=partial(self.finish, held), wanted=lambda: held.state == "reporting"
        )

    # --- what reports say -----------------------------------------------------------------------------------------------

    def claim_report(
        self, kind: ReportKind, held: Held, execution: str, epoch: int, started_ms: int, lease_ms: int = 0
    ) -> RunReport:
        """`started` or `heartbeat`."""
        run = held.run
        return RunReport(
            kind=kind,
            run_id=run.run_id,
            namespace=run.namespace,
            job_id=run.job_id,
            seq=run.seq,
            dispatch=run.dispatch,
            attempt=run.attempt,
            execution=execution,
            epoch=epoch,
            worker=self._worker,
            started_ms=started_ms,
            lateness_ms=started_ms - run.due_ms,
            clock_offset_ms=self._clock_offset.offset_ms(),
            lease_ms=lease_ms,
        )

    def final_report(
        self, kind: ReportKind, held: Held, execution: str, epoch: int, outcome: Outcome
    ) -> RunReport:
        """How an execution ended."""
        run = held.run
        return RunReport(
            kind=kind,
            run_id=run.run_id,
            namespace=run.namespace,
            job_id=run.job_id,
            seq=run.seq,
            dispatch=run.dispatch,
            attempt=run.attempt,
            execution=execution,
            epoch=epoch,
            worker=self._worker,
            started_ms=outcome.started_ms,
            ended_ms=outcome.ended_ms,
            lateness_ms=outcome.started_ms - run.due_ms,
            http_status=outcome.http_status,
            error=_encodable(outcome.error[:ERROR_CHARACTERS_MAX]),
            retryable=outcome.retryable,
            retry_after_ms=outcome.retry_after_ms,
            response=outcome.response,
            clock_offset_ms=self._clock_offset.offset_ms(),
        )

    def _report(self, kind: ReportKind, run: DueRun, epoch: int) -> RunReport:
        return RunReport(
            kind=kind,
            run_id=run.run_id,
            namespace=run.namespace,
            job_id=run.job_id,
            seq=run.seq,
            dispatch=run.dispatch,
            attempt=run.attempt,
            epoch=epoch,
            worker=self._worker,
            clock_offset_ms=self._clock_offset.offset_ms(),
        )


def _encodable(text: str) -> str:
    """The text with ? for each half of a character: what an exception says is not ours, and the log takes UTF-8 only."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()
