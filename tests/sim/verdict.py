"""What the judge found: the first violation is raised; residuals, which the protocol names, are counted."""

from collections import Counter
from dataclasses import dataclass, field


class Violation(AssertionError):
    """An invariant does not hold. `invariant` is its name (I1 ... I12, or a word)."""

    def __init__(self, invariant: str, text: str) -> None:
        self.invariant = invariant
        super().__init__(f"{invariant}: {text}")


@dataclass(slots=True)
class Verdict:
    """Of a world without violations."""

    residuals: Counter[str] = field(default_factory=Counter)
    """How often something happened that the protocol allows, by its name."""
    counts: Counter[str] = field(default_factory=Counter)
    """How much there was to judge: a judge of nothing finds nothing."""
