"""Small complete programs. Run one as ``python -m examples.consume``; ``HOST:PORT TOPIC`` behind it reads from your own brokers."""
