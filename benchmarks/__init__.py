"""Compares this package with its peers on one broker: ``python -m benchmarks --help``."""
