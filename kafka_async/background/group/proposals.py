"""Changes that a membership proposes to the application, by number.

The application applies them, inside its own read call, and answers with the number. Proposals before the last one need no answer
any more.
"""

from ...model import TopicPartition
from ...values import define, field
from .membership import MembershipHost

NO_PROPOSAL = 0
_NEVER_GIVEN_UP = -1


@define(eq=False)
class Proposals:
    """The proposals of one membership."""

    host: MembershipHost = field(repr=False)
    number: int = field(default=NO_PROPOSAL, init=False)
    """Of the last proposal."""
    _taking: frozenset[TopicPartition] = field(default=frozenset(), init=False)
    _gave_all_up_in: int = field(default=_NEVER_GIVEN_UP, init=False)
    """The generation at whose end the application gave everything up, to have back what stays (eager protocol)."""

    @property
    def held(self) -> frozenset[TopicPartition]:
        """What the application has, or will have when it comes to our last proposal."""
        return self.host.owned() | self._taking

    def is_answer(self, number: int) -> bool:
        """Whether ``number`` answers the last proposal."""
        return number == self.number != NO_PROPOSAL

    def propose(self, partitions: frozenset[TopicPartition], *, successive: bool = True) -> None:
        """Have the application take these over; other partitions that it has are not fetched any more."""
        leaving = self.held - partitions
        if leaving:
            self.host.stop_fetching(leaving)
        self._taking = partitions
        self.number += 1
        self.host.publish_assignment(self.number, partitions, successive=successive)

    def propose_back(self, partitions: frozenset[TopicPartition], generation: int) -> None:
        """Have the application take these over in an eager ``generation``: it gave everything up before."""
        successive = generation == self._gave_all_up_in + 1
        self._gave_all_up_in = _NEVER_GIVEN_UP
        self.propose(partitions, successive=successive)

    def give_up(self, partitions: frozenset[TopicPartition], *, lost: bool) -> None:
        """Have the application give these up."""
        self._revoke(partitions, lost=lost, returning=False)

    def give_all_up(self, partitions: frozenset[TopicPartition], generation: int) -> None:
        """Have the application give up all that it has, at the end of an eager ``generation``; some of it may come back."""
        self._gave_all_up_in = generation
        self._revoke(partitions, lost=False, returning=True)

    def _revoke(self, partitions: frozenset[TopicPartition], *, lost: bool, returning: bool) -> None:
        self.number += 1
        self.host.stop_fetching(partitions)
        self.host.publish_revocation(self.number, partitions, lost=lost, returning=returning)

    def taken_over(self) -> None:
        """The application has what it was asked to take over, or will not come to it any more."""
        self._taking = frozenset()

    def forget_generation(self) -> None:
        """Partitions that were given up may have had other owners since: we were out of the group, and a new group counts
        from the start.
        """
        self._gave_all_up_in = _NEVER_GIVEN_UP
