"""A role that goes wrong on purpose: `python -m tests.kafka.faulty FAULT... -- streams --kafka ...`.

--shift MS: its wall clock is off by so much. --die-in-transaction N: it kills itself (-9) when its N-th transaction is
on the broker and not committed. The product has no hooks for this: what is patched here is the clock it asks, and the
producer that its log makes.
"""

import argparse
import os
import signal
import sys
from typing import Any

from tocsin.clock import SystemClock


def shift_clock(ms: int) -> None:
    real = SystemClock.now_ms

    def now_ms(self: SystemClock) -> int:
        return real(self) + ms

    SystemClock.now_ms = now_ms  # type: ignore[method-assign]


def die_in_transaction(number: int) -> None:
    """Counts the transactions that were asked to commit; the given one is left open."""
    from tocsin.log.kafka.transactions import KafkaTransactionalProducer

    real = KafkaTransactionalProducer.commit
    asked = 0

    def commit(self: Any) -> Any:
        nonlocal asked
        asked += 1
        if asked == number:
            left = self._producer.flush(30)
            sys.stderr.write(f"faulty: transaction {number} is open, {left} records not sent: dying\n")
            sys.stderr.flush()
            os.kill(os.getpid(), signal.SIGKILL)
        return real(self)

    KafkaTransactionalProducer.commit = commit  # type: ignore[method-assign]


def main() -> None:
    faults, _, command = " ".join(sys.argv[1:]).partition(" -- ")
    parser = argparse.ArgumentParser()
    parser.add_argument("--shift", type=int, default=0)
    parser.add_argument("--die-in-transaction", type=int, default=0)
    given = parser.parse_args(faults.split())
    if given.shift:
        shift_clock(given.shift)
    if given.die_in_transaction:
        die_in_transaction(given.die_in_transaction)
    from tocsin.cli import main as tocsin

    sys.argv = ["tocsin", *command.split()]
    tocsin()


if __name__ == "__main__":
    main()
