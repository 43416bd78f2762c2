"""The one way this package says no."""

from __future__ import annotations


class ScheduleError(ValueError):
    """A schedule, an instant or a duration that was written down cannot mean anything.

    It is always the caller's fault and never goes away by trying again. Every error names what a form or an
    API needs to show it beside the right input:

    * ``field``: the part that is wrong, in the words of the user (``minute``, ``timezone``, ``duration``
      ...);
    * ``rule``: a stable slug for programs (``cron-minute``, ``timezone-unknown`` ...);
    * ``message``: one sentence that says what is wrong and what would be right;
    * ``value``: the text that was given.
    """

    def __init__(self, *, field: str, rule: str, message: str, value: str) -> None:
        super().__init__(message)
        self.field = field
        self.rule = rule
        self.message = message
        self.value = value

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild, (self.field, self.rule, self.message, self.value))


def _rebuild(field: str, rule: str, message: str, value: str) -> ScheduleError:
    return ScheduleError(field=field, rule=rule, message=message, value=value)
