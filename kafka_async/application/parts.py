"""The parts of a consumer, and how they are put together.

They are what the facades and ``process`` talk to: nobody reaches into a consumer. None of them refers to the consumer itself, so
that one that is garbage is noticed.
"""

from itertools import count
from typing import TYPE_CHECKING, Final
from weakref import ref

from ..background.boundary import EventHandler, FetchBuffer
from ..config import ConsumerConfig
from ..functions import mark_as_coroutine_functions
from ..model import GroupMetadata
from ..records import keep_freed_memory, warn_if_slow
from ..values import field, frozen
from .background_calls import BackgroundCalls
from .callbacks import Preparation, check_callbacks
from .committing.auto_commit import AutoCommit, Holdings, LastCommit
from .committing.commit_calls import CommitCalls
from .committing.commits import Commits
from .group.assigned import AssignedPartitions
from .group.rebalancing import Listening, Rebalancing
from .group.subscribed import Subscribed
from .group.unasked import Unasked, attend_unasked
from .inbox import Inbox
from .lifecycle.lifecycle import Lifecycle
from .lifecycle.metrics import Metrics
from .lifecycle.observing import Observer
from .lifecycle.ownership import CallGuard, Ownership
from .lifecycle.parting import Parting
from .outbox import Outbox
from .reading.in_vain import InVain
from .reading.iteration import HANDOUT
from .reading.ranges import Ranges
from .reading.read_calls import ReadCalls
from .reading.reader import Gate, Reader
from .reading.unread import Unread

if TYPE_CHECKING:
    from ..network import TransportFactory
    from .lifecycle.runtime import Runtime
    from .lifecycle.starting import Starting

_numbers = count(1)
_NOTHING_TO_READ: Final = (
    "a read waits, but nothing is subscribed or assigned: call subscribe() or assign(), or give topics to the constructor"
)


@frozen(eq=False)
class Parts:
    """One consumer, assembled."""

    config: ConsumerConfig
    runtime: "Runtime" = field(repr=False)
    guard: CallGuard = field(repr=False)
    inbox: Inbox = field(repr=False)
    outbox: Outbox = field(repr=False)
    subscribed: Subscribed
    unread: Unread = field(repr=False)
    assigned: AssignedPartitions = field(repr=False)
    observer: Observer = field(repr=False)
    rebalancing: Rebalancing = field(repr=False)
    calls: BackgroundCalls = field(repr=False)
    reads: ReadCalls = field(repr=False)
    commits: CommitCalls = field(repr=False)
    starting: "Starting" = field(repr=False)
    parting: Parting = field(repr=False)


def _named(config: ConsumerConfig) -> ConsumerConfig:
    """Return the configuration; a consumer without a ``client_id`` gets one as Java gives it."""
    check_callbacks(config)
    if "client_id" in config.given:
        return config
    return config.with_client_id(f"consumer-{(config.group_id or 'none')[:200]}-{next(_numbers)}")


def assemble(
    config: ConsumerConfig, runtime: "Runtime | None" = None, transport_factory: "TransportFactory | None" = None
) -> Parts:
    """Make the parts and give each of them those that it talks to."""
    # What talks to brokers takes a third of the import's time. A program that names the class may never make one.
    from ..network import Dated, TcpConnector
    from .lifecycle.runtime import TaskRuntime, ThreadRuntime
    from .lifecycle.starting import Starting

    config = _named(config)
    warn_if_slow()
    keep_freed_memory()
    mark_as_coroutine_functions()
    runtime = runtime or (TaskRuntime() if config.background == "task" else ThreadRuntime.for_tasks())
    handler = EventHandler(runtime.wake_background, runtime.wake_application)
    buffer = FetchBuffer(config.fetch_buffer_bytes, runtime.wake_application, runtime.wake_background)
    handout = HANDOUT()
    handler.attend = handout.attend
    handler.progress = lambda: handout.left
    lifecycle = Lifecycle(handler, runtime)
    guard = CallGuard(Ownership(runtime, lifecycle), lifecycle)
    outbox = Outbox(handler)
    inbox = Inbox(handler, GroupMetadata(group_id=config.group_id, group_instance_id=config.group_instance_id))
    subscribed = Subscribed()
    unread = Unread(config, buffer, outbox, handout)
    metrics = Metrics()
    dated = transport_factory if isinstance(transport_factory, Dated) else None
    observer = Observer(config, runtime, lifecycle, inbox, unread, metrics, dated)
    commits = Commits(unread, runtime, outbox, config.interceptors, observer)
    auto_commit = AutoCommit(config, runtime, unread, commits, Holdings(runtime, unread, handout))
    rebalancing = Rebalancing(unread, inbox, outbox, Listening(runtime), LastCommit(auto_commit, runtime), observer, runtime)
    assigned = AssignedPartitions(unread, rebalancing)
    # The background holds the observer. Over this it would hold the listener as well, which may refer to the consumer.
    own = ref(assigned)
    observer.cursors = lambda: unread.partitions.copy() if (found := own()) is None else found.cursors()
    if not runtime.blocks:
        guard.unasked = Unasked(config, lifecycle, rebalancing, unread).attend
        attend_unasked(runtime, guard)
    gate = Gate(lifecycle, handler, inbox, rebalancing, subscribed, unread)
    in_vain = InVain(observer, runtime, _NOTHING_TO_READ)
    reader = Reader(
        config,
        unread,
        runtime,
        gate,
        auto_commit,
        Preparation.of(config, awaits=not runtime.blocks),
        metrics.idle,
        handout,
        in_vain,
    )
    calls = BackgroundCalls(config, runtime, lifecycle, inbox, outbox)
    parting = Parting(config, lifecycle, runtime, calls, auto_commit, rebalancing, subscribed, in_vain, observer)
    factory = transport_factory or TcpConnector.from_config(config)  # reads the TLS files: a bad one is refused here
    return Parts(
        config=config,
        runtime=runtime,
        guard=guard,
        inbox=inbox,
        outbox=outbox,
        subscribed=subscribed,
        unread=unread,
        assigned=assigned,
        observer=observer,
        rebalancing=rebalancing,
        calls=calls,
        reads=ReadCalls(config, runtime, guard, assigned, reader, Ranges(config, runtime, unread, reader, calls)),
        commits=CommitCalls(guard, calls, assigned, auto_commit),
        starting=Starting(config, lifecycle, runtime, calls, reader, parting, subscribed, observer, factory),
        parting=parting,
    )
