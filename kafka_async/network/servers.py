"""Which servers there are: the brokers that metadata names, and the servers to start from while it names none."""

from collections.abc import Iterable, Mapping

from ..model import Node
from ..values import define, field


@define(eq=False)
class KnownServers:
    """The servers that requests may go to."""

    bootstrap: Mapping[int, Node] = field(factory=dict)
    """The servers to start from; their ids are negative."""
    named: dict[int, Node] = field(factory=dict)
    """The brokers that metadata names."""
    former: Mapping[int, Node] = field(factory=dict)
    """Further servers to start from: brokers that metadata named once, under negative ids."""
    current: Mapping[int, Node] = field(factory=dict)
    """Those to ask now."""

    def set_bootstrap(self, nodes: Iterable[Node]) -> None:
        """Set the servers to start from."""
        self.bootstrap = {node.id: node for node in nodes}
        self.set_named(self.named)

    def set_named(self, nodes: Mapping[int, Node]) -> None:
        """Take the brokers that metadata names."""
        self.named = dict(nodes)
        self.current = self.named or {**self.bootstrap, **self.former}

    def start_again(self, former: Iterable[Node]) -> None:
        """No broker is known any more. Those of ``former`` serve beside the servers to start from."""
        addresses = set(map(_address, self.bootstrap.values()))
        others = [node for node in former if _address(node) not in addresses]
        lowest = min(self.bootstrap, default=0)
        self.former = {node.id: node for node in (Node(lowest - place, *_address(node)) for place, node in enumerate(others, 1))}
        self.set_named({})


def _address(node: Node) -> tuple[str, int]:
    return node.host, node.port
