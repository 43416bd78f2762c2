"""The figures of a scenario are told also when it passes: how late, how many second executions, and why."""

from typing import Protocol

import pytest

from tests.kafka.judge import Verdict


class Tell(Protocol):
    def __call__(self, what: str, verdict: Verdict) -> None:
        """Says it, and raises AssertionError if something was lost, double or wrong."""


def teller(request: pytest.FixtureRequest) -> Tell:
    """Into the report of the test: `pytest -rA` shows it, and what failed always."""

    def tell(what: str, verdict: Verdict) -> None:
        reporter = request.config.pluginmanager.get_plugin("terminalreporter")
        line = f"{what}: {verdict}"
        request.node.add_report_section("call", "told", line)
        if reporter is not None:
            reporter.write_line("")
            reporter.write_line(line)
        verdict.check()

    return tell
