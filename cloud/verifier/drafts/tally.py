"""Running counts of what became of drafts."""

from dataclasses import dataclass, fields

from cloud.verifier.drafts.tape import Taken
from shared.draftport.messages import Counts


@dataclass(slots=True)
class Tally:
    """Mutable twin of `shared.draftport.messages.Counts`, whose docstrings say what each field means."""

    messages: int = 0
    received: int = 0
    invalid: int = 0
    unknown_stream: int = 0
    stale: int = 0
    late: int = 0
    overflow: int = 0
    scheduled: int = 0
    accepted: int = 0
    rejected: int = 0
    voided: int = 0
    steps: int = 0
    request_steps: int = 0
    holds: int = 0
    hold_misses: int = 0
    lookup_scheduled: int = 0
    lookup_accepted: int = 0

    def lost(self, lost: dict[Taken, int]) -> None:
        """Adds tokens that a tape did not keep."""
        for reason, count in lost.items():
            match reason:
                case Taken.STALE:
                    self.stale += count
                case Taken.LATE:
                    self.late += count
                case Taken.OVERFLOW:
                    self.overflow += count

    def snapshot(self) -> Counts:
        return Counts(**{field.name: getattr(self, field.name) for field in fields(self)})
