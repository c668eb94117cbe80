"""The monitor over HTTP: a page, JSON, Prometheus, KEDA. Read only, and nothing but the standard library.

::

    messages.py    requests and replies of HTTP, as far as a monitor needs them
    guard.py       who may ask: the Host header, methods, the token
    pages.py       the page, which works without JavaScript
    exposition.py  numbers for Prometheus
    site.py        what is under which path
    server.py      connections, limits, events as they come

``page.js`` and ``page.css`` are what the page loads, from here and from nowhere else.
"""

from .guard import Guard
from .server import WebServer
from .site import Site

__all__ = ["Guard", "Site", "WebServer"]
