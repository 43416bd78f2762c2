"""What a worker has read of one partition and may still need: control, later dispatches, floors (W3, W7).

A control record may be read before the due record that it is about, and a later dispatch before an earlier one (two
lanes, and whatever is fetched again). So both are remembered, until no due record that they could be about can still
be fetched: when both lanes are finished past the ends that they had after it was read. Two generations are enough for
that: the younger takes what is read, the older is dropped when the lanes have passed the ends captured at its closing.
"""

from typing import Final

from tocsin.schemas.records import Control

ROTATION_ENTRIES_MIN: Final = 1_000
"""Below that, remembering costs less than asking the log for its ends."""


class Knowledge:
    """Of one partition, during one assignment."""

    __slots__ = ("_closed_ends", "_controls", "_dispatches", "_floors", "_old")

    def __init__(self) -> None:
        self._controls: dict[str, Control] = {}
        self._dispatches: dict[str, int] = {}
        self._floors: dict[str, int] = {}
        self._old: tuple[dict[str, Control], dict[str, int], dict[str, int]] = ({}, {}, {})
        self._closed_ends: tuple[int, int] | None = None

    def learn_control(self, control: Control) -> None:
        """Control is cumulative: the newest record of a run says all."""
        self._controls[control.run_id] = control

    def control(self, run_id: str) -> Control | None:
        return self._controls.get(run_id) or self._old[0].get(run_id)

    def learn_dispatch(self, run_id: str, dispatch: int) -> bool:
        """A due record was read. Returns whether it is the latest dispatch of its run that was read so far."""
        if dispatch == 1:
            # Nothing comes before it, so there is nothing to remember: most runs have no second dispatch.
            return run_id not in self._dispatches and run_id not in self._old[1]
        latest = self.latest_dispatch(run_id)
        if dispatch > latest:
            self._dispatches[run_id] = dispatch
        return dispatch >= latest

    def latest_dispatch(self, run_id: str) -> int:
        return self._dispatches.get(run_id) or self._old[1].get(run_id, 0)

    def learn_floor(self, job: str, floor: int) -> bool:
        """A due record of the job was read. Returns whether its floor is higher than any read before."""
        if floor <= self.floor(job):
            return False
        self._floors[job] = floor
        return True

    def floor(self, job: str) -> int:
        return self._floors.get(job) or self._old[2].get(job, 0)

    def __len__(self) -> int:
        young = len(self._controls) + len(self._dispatches) + len(self._floors)
        return young + sum(len(part) for part in self._old)

    def may_forget(self, lows: tuple[int, int]) -> bool:
        """Whether it is worth asking the log for both lanes' ends, and calling rotate() with them."""
        if len(self) < ROTATION_ENTRIES_MIN:
            return False
        ends = self._closed_ends
        return ends is None or (lows[0] >= ends[0] and lows[1] >= ends[1])

    def rotate(self, ends: tuple[int, int]) -> None:
        """Forget the old generation and close the young one; `ends` are the lanes' true ends after that."""
        self._old = (self._controls, self._dispatches, self._floors)
        self._controls, self._dispatches, self._floors = {}, {}, {}
        self._closed_ends = ends
