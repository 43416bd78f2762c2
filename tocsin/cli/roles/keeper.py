"""Stops the broker of a directory once every process that needs it is gone, however it ended.

`tocsin up --kafka local` runs it beside the roles: `python -m tocsin.cli.roles.keeper DIRECTORY`. It waits for the end of
its standard input, whose other end all of them hold.
"""

import os
import signal
import sys
from pathlib import Path

from tocsin.broker import BrokerFailed, LocalKafka


def main() -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # those are for the others; it goes last
    while os.read(0, 4_096):
        pass
    try:
        LocalKafka(Path(sys.argv[1])).stop()
    except BrokerFailed as error:
        print(f"the broker was not stopped: {error}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
