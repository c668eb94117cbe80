"""The package or the repository as a whole. Not one folder up: setuptools puts ``tests/test_*.py`` into each sdist."""
