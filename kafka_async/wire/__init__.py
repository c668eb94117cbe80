"""What the bytes mean: Kafka's messages and their versions.

Nothing here waits, reads a clock, or remembers anything about a broker or a connection.

    messages/        every message once, in its newest shape: its fields, their types and versions
    shapes.py        the few whose older versions are built differently
    versions.py      what we speak, what a broker offers, which version carries a request
    layout.py        which fields one version of a message has
    compiler.py      readers and writers made from that
    primitives.py    strings, arrays, tags
    admin_shapes.py  the same for messages that only tools and tests use
    codec.py         headers, whole messages, errors
    step.py          a fast path for the one message that is exchanged all the time
"""

from typing import TYPE_CHECKING

from . import messages as messages
from .codec import decode_assignment as decode_assignment
from .codec import decode_response as decode_response
from .codec import decode_subscription as decode_subscription
from .codec import encode_assignment as encode_assignment
from .codec import encode_request as encode_request
from .codec import encode_subscription as encode_subscription
from .codec import response_correlation_id as response_correlation_id
from .messages import Api as Api
from .messages import Request as Request
from .messages import Response as Response
from .messages import Struct as Struct
from .step import FetchedStep as FetchedStep
from .step import FetchStep as FetchStep
from .versions import IDENTIFYING as IDENTIFYING
from .versions import SUPPORTED as SUPPORTED
from .versions import UNSUPPORTED_VERSION as UNSUPPORTED_VERSION
from .versions import BrokerVersions as BrokerVersions
from .versions import VersionRange as VersionRange
from .versions import next_api_versions as next_api_versions

if TYPE_CHECKING:  # the messages as well, without saying their names again
    from .messages import *  # noqa: F403
else:
    __getattr__ = messages.__getattr__
