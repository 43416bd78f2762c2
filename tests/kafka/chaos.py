"""Rounds of chaos: processes and the broker are killed, frozen and restarted at random, and nothing may be lost or doubled.

    python -m tests.kafka.chaos [--rounds 30] [--seed 1] [--seconds 25] [--spare-broker] [--keep DIR]

Round number r has the seed SEED + r - 1, which alone decides who there is, what runs and what is done to whom (the machine
decides the rest). A line for each round; exit code 1 if anything was lost, double or wrong: then the output of its
processes is kept.
"""

import argparse
import signal
import sys
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import httpx

from tests.kafka.cluster import Cluster, made
from tests.kafka.judge import Verdict
from tests.kafka.plans import SPAN_S, WORKERS, Fault, Plan, Request, documents, late_document, plan
from tests.kafka.roles import Role
from tests.kafka.waiting import pass_time, until
from tocsin.broker import LocalKafka
from tocsin.clock import SystemClock

ASKS_WITHIN_S: Final = 5.0
"""Of a request in the midst of it: what is not answered by then may have happened, or not."""


@dataclass(kw_only=True)
class Round:
    """One plan, carried out on one cluster."""

    plan: Plan
    cluster: Cluster
    broker: LocalKafka | None
    clock: SystemClock = field(default_factory=SystemClock)
    _broker_is: str = "well"
    _ended: list[str] = field(default_factory=list)

    def run(self) -> Verdict:
        cluster = self.cluster
        cluster.sink.start()
        for number, standby in enumerate(self.plan.standby, 1):
            cluster.streams(number, *(["--standby"] if standby else []))
        for number in range(1, WORKERS + 1):
            cluster.worker(number)
        cluster.api()
        cluster.until_ready()
        self._define()
        self._break_things()
        ended = self._heal()
        verdict = cluster.settled()
        verdict.wrong += ended
        return verdict

    def _define(self) -> None:
        jobs = documents(self.plan, self.cluster.sink.url)
        allowing = [each for each in jobs if each["overlap"] == "allow"]
        skipping = [each for each in jobs if each["overlap"] == "skip"]
        self.cluster.define(*allowing)
        self.cluster.define(*skipping, skips=["overlap"])
        self.cluster.define(
            {**jobs[0], "id": "manual", "schedule": {}, "overlap": "allow"},
        )

    def _break_things(self) -> None:
        """Everything at its time, as far as the machine keeps up."""
        deeds: list[tuple[float, Callable[[], None]]] = []
        for fault in self.plan.faults:
            deeds.append((fault.at_s, lambda fault=fault: self._begin(fault)))  # type: ignore[misc]
            deeds.append((fault.at_s + fault.for_s, lambda fault=fault: self._end(fault)))  # type: ignore[misc]
        deeds += [
            (each.at_s, lambda each=each: self._ask(each))  # type: ignore[misc]
            for each in self.plan.requests
        ]
        began_s = self.clock.monotonic_s()
        for at_s, deed in sorted(deeds, key=lambda each: each[0]):
            pass_time(max(0.0, began_s + at_s - self.clock.monotonic_s()))
            deed()

    # --- faults

    def _begin(self, fault: Fault) -> None:
        if fault.target == "broker":
            self._harm_broker(fault)
            return
        role = self.cluster[fault.target]
        if not role.alive or role.frozen:
            return
        match fault.deed:
            case "kill":
                role.kill()
            case "freeze":
                role.freeze()
            case "restart":
                role.ask_to_stop()

    def _note_if_ended(self, role: Role) -> None:
        if role.ended_by_itself:
            self._ended.append(f"{role.name} ended by itself: {role.said[-500:]}")

    def _end(self, fault: Fault) -> None:
        if fault.target == "broker":
            self._heal_broker()
            return
        role = self.cluster[fault.target]
        if role.frozen:
            role.thaw()
        elif role.stopping:
            role.stop()
        self._note_if_ended(role)
        if not role.alive:
            role.start()

    def _harm_broker(self, fault: Fault) -> None:
        if self.broker is None or self._broker_is != "well":
            return
        if fault.deed == "kill":
            self.cluster.happenings.note("broker", "broker", "kill")
            self.broker.kill()
            self._broker_is = "dead"
        else:
            self.cluster.happenings.note("broker", "broker", "freeze")
            self.broker.pause()
            self._broker_is = "frozen"

    def _heal_broker(self) -> None:
        if self.broker is None or self._broker_is == "well":
            return
        if self._broker_is == "dead":
            self.broker.restart()
            self.cluster.happenings.note("broker", "broker", "start")
        else:
            self.broker.resume()
            self.cluster.happenings.note("broker", "broker", "thaw")
        self._broker_is = "well"

    def _heal(self) -> list[str]:
        """All run again. Returns who ended by itself: whatever goes wrong around it, no role may do that."""
        self._heal_broker()
        for name in (*self.plan.targets, "api"):
            role = self.cluster[name]
            if role.frozen:
                role.thaw()
            if role.stopping:
                role.stop()
            self._note_if_ended(role)
            if not role.alive:
                role.start()
        self.cluster.until_ready()
        until(
            lambda: len(self.cluster.owners()) == self.cluster.partitions,
            lambda: f"every partition has an owner: {self.cluster.owners()}",
        )
        return self._ended

    # --- requests

    def _ask(self, ask: Request) -> None:
        """What is acknowledged must happen; what is not may."""
        cluster = self.cluster
        api = cluster["api"]
        if not api.alive or api.frozen or not api.url:
            return
        try:
            if ask.trigger:
                cluster.trigger("default/manual", f"t-{ask.number}", within_s=ASKS_WITHIN_S)
            else:
                document = late_document(self.plan, cluster.sink.url, ask.number)
                skips = ["overlap"] if document["overlap"] == "skip" else []
                cluster.define_if_possible(document, skips=skips, within_s=ASKS_WITHIN_S)
        except httpx.HTTPError:
            return


def run_round(
    bootstrap: str, directory: Path, chosen: Plan, broker: LocalKafka | None
) -> tuple[Verdict | AssertionError, str]:
    """What was found, and what the processes said."""
    with ExitStack() as stack:
        cluster = stack.enter_context(made(bootstrap, directory, tell=lambda _: None))
        try:
            found: Verdict | AssertionError = Round(plan=chosen, cluster=cluster, broker=broker).run()
        except AssertionError as error:
            found = error
        return found, cluster.tails(2_000)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=SPAN_S, help="how long faults go on in each round")
    parser.add_argument("--spare-broker", action="store_true", help="nothing is done to the broker")
    parser.add_argument("--keep", type=Path, help="where the output of a bad round's processes is kept")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that the broker ends with us, then too
    bad = 0
    with tempfile.TemporaryDirectory(prefix="tocsin-chaos-") as directory:
        broker = LocalKafka(Path(directory) / "kafka")
        broker.start(say)
        try:
            for seed in range(given.seed, given.seed + given.rounds):
                chosen = plan(seed, span_s=given.seconds, broker=not given.spare_broker)
                folder = Path(directory) / f"round-{seed}"
                found, output = run_round(broker.bootstrap, folder, chosen, broker)
                bad += not report(seed, chosen, found, output, given.keep)
                if not all(each.answers for each in broker.status()):
                    broker.restart()  # a round that failed may have left it frozen or dead
        finally:
            broker.wipe()
    say(f"{given.rounds} rounds, {bad} bad")
    raise SystemExit(1 if bad else 0)


def report(seed: int, chosen: Plan, found: Verdict | AssertionError, output: str, keep: Path | None) -> bool:
    """A line, and for a bad round all that is known. Returns whether the round was good."""
    say(f"round seed {seed}: {found if isinstance(found, Verdict) else 'FAILED'} | {chosen}")
    trouble = ""
    try:
        if isinstance(found, AssertionError):
            raise found
        found.check()
    except AssertionError as error:
        trouble = str(error)
    if trouble:
        folder = keep or Path(tempfile.mkdtemp(prefix="tocsin-chaos-bad-"))
        folder.mkdir(parents=True, exist_ok=True)
        kept = folder / f"round-{seed}.txt"
        kept.write_text(f"{chosen}\n{trouble}\n{output}")
        say(f"{trouble}\n  the output of its processes: {kept}")
    return not trouble


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
