"""The monitor over HTTP: a page, JSON, Prometheus, KEDA. Read only, and nothing but the standard library.

::

    messages.py    requests and replies of HTTP, as far as a monitor needs them
    guard.py       who may ask: the Host header, methods, the token
    pages.py       the page, which works without JavaScript
    prometheus.py  its text format
    exposition.py  numbers for it
    site.py        what is under which path
    live.py        what was seen last, events as they come
    server.py      connections and their limits

``page.js`` and ``page.css`` are what the page loads, from here and from nowhere else.
"""

from .guard import Guard
from .live import WebServer
from .site import Site

__all__ = ["Guard", "Site", "WebServer"]
