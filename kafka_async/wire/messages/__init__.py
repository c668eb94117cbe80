"""Every message that a consumer speaks, one class each, in its newest shape.

    base.py       the numbers of the APIs, and what a message is made of
    cluster.py    versions, brokers, topics
    fetch.py      records, offsets by time, the end offsets of leader epochs
    coordinator.py, describing.py, login.py, telemetry.py      messages that a plain consumer does not need
    group.py      membership, in both protocols
    offsets.py    committed offsets
    share.py      share groups
    admin.py      requests of tools and tests; not imported from here
    produce.py    requests of producers, for tools and tests; not imported from here

Managers see one type per message; ``codec.py`` carries it down to the version in use and back up. A module is imported when the
first of its names is used.
"""

from typing import TYPE_CHECKING

from ...lazy import from_modules
from .base import Api as Api
from .base import Request as Request
from .base import Response as Response
from .base import Struct as Struct

if TYPE_CHECKING:  # the names stand where they are defined, and nowhere else
    from .cluster import *  # noqa: F403
    from .coordinator import *  # noqa: F403
    from .describing import *  # noqa: F403
    from .fetch import *  # noqa: F403
    from .group import *  # noqa: F403
    from .login import *  # noqa: F403
    from .offsets import *  # noqa: F403
    from .share import *  # noqa: F403
    from .telemetry import *  # noqa: F403
else:
    small = {  # found without a look into the others, which would import them
        ".coordinator": "Coordinator FindCoordinatorResponse FindCoordinatorRequest",
        ".describing": """
            DescribeConfigsSynonym DescribeConfigsResourceResult DescribeConfigsResult DescribeConfigsResponse
            DescribeConfigsResource DescribeConfigsRequest
            DescribeClusterBroker DescribeClusterResponse DescribeClusterRequest
        """,
        ".login": "SaslHandshakeResponse SaslHandshakeRequest SaslAuthenticateResponse SaslAuthenticateRequest",
        ".telemetry": """
            GetTelemetrySubscriptionsResponse GetTelemetrySubscriptionsRequest PushTelemetryResponse PushTelemetryRequest
        """,
    }
    known = ("cluster", "fetch", "group", "offsets", "share")
    __getattr__ = from_modules(__name__, (*known, "coordinator", "describing", "login", "telemetry"), small)
