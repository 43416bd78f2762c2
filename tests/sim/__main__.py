"""`python -m tests.sim SEED [WORDS]`: everything that happened in one seed's life, and what the judge says of it.

With WORDS, of the records on the log only those that mention them: a job, a run.
"""

import logging
import sys

from tests.sim.chronicle import chronicle
from tests.sim.oracle import judge
from tests.sim.scenario import live, make_world


def main() -> int:
    if not 2 <= len(sys.argv) <= 3 or not sys.argv[1].isdecimal():
        sys.stderr.write(f"{__doc__}\n")
        return 2
    logging.disable(logging.CRITICAL)
    world, plan = make_world(int(sys.argv[1]))
    with world:
        world.note(f"{plan}")
        try:
            live(world, plan)
            world.stop(*world.streams)
            said, failed = f"no violation: {judge(world, healthy=plan.weather == 'calm')}", 0
        except AssertionError as error:
            said, failed = f"{type(error).__name__}: {error}", 1
        sys.stdout.write(chronicle(world, sys.argv[2] if len(sys.argv) == 3 else "") + "\n")
        sys.stdout.write(f"seed {world.seed}: {said}\n")
    return failed


if __name__ == "__main__":
    sys.exit(main())
