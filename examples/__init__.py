"""Small complete programs. Run one as ``python -m examples.consume``, with your own ``HOST:PORT TOPIC`` behind it if you have them."""
