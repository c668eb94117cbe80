"""Which servers there are: the brokers that metadata names, and the servers to start from while it names none."""

from collections.abc import Collection, Iterable, Mapping

from ..model import Node
from ..values import define, field


@define(eq=False)
class KnownServers:
    """The servers that requests may go to."""

    configured: Mapping[int, Node] = field(factory=dict)
    """The servers to start from, as the options name them; their ids are negative."""
    bootstrap: Mapping[int, Node] = field(factory=dict)
    """The same, under the names that were found for them since."""
    named: dict[int, Node] = field(factory=dict)
    """The brokers that metadata names."""
    former: Mapping[int, Node] = field(factory=dict)
    """Further servers to start from: brokers that metadata named once, under negative ids."""
    current: Mapping[int, Node] = field(factory=dict)
    """Those to ask now."""

    def set_bootstrap(self, nodes: Iterable[Node]) -> None:
        """Set the servers to start from."""
        self.configured = self.bootstrap = {node.id: node for node in nodes}
        self.set_named(self.named)

    def replace_bootstrap(self, host: str, port: int, names: Collection[str]) -> Node | None:
        """A server to start from stands for these hosts, which take its place. Return it if it is none of them itself."""
        alias = next((node for node in self.bootstrap.values() if _address(node) == (host, port)), None)
        if alias is None:
            return None
        others = {**self.bootstrap, **self.former}
        known = set(map(_address, others.values()))
        new = [name for name in dict.fromkeys(names) if (name, port) not in known]
        found = {min(others) - place: name for place, name in enumerate(new, 1)}  # no id is another server's from now on
        kept = {node.id: node for node in self.bootstrap.values() if node is not alias or host in names}
        self.bootstrap = kept | {number: Node(number, name, port) for number, name in found.items()}
        self.set_named(self.named)
        return None if host in names else alias

    def set_named(self, nodes: Mapping[int, Node]) -> None:
        """Take the brokers that metadata names."""
        self.named = dict(nodes)
        self.current = self.named or {**self.bootstrap, **self.former}

    def start_again(self, former: Iterable[Node]) -> None:
        """No broker is known any more. Those of ``former`` serve beside the servers to start from.

        These have the names of the options again, which may stand for other hosts by now.
        """
        self.bootstrap = self.configured
        addresses = set(map(_address, self.bootstrap.values()))
        others = [node for node in former if _address(node) not in addresses]
        lowest = min(self.bootstrap, default=0)
        self.former = {node.id: node for node in (Node(lowest - place, *_address(node)) for place, node in enumerate(others, 1))}
        self.set_named({})


def _address(node: Node) -> tuple[str, int]:
    return node.host, node.port
