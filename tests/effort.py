"""How much of what is endless the tests try: a little in each run, and as much as there is time for with the profile ``long``.

``pytest -m fast --hypothesis-profile=long`` multiplies it: see the README beside this file.
"""

from hypothesis import settings


def examples(times: float) -> settings:
    """Return settings for so many times the examples that the profile gives a test: 100 in each run."""
    return settings(max_examples=round(settings().max_examples * times), deadline=None)
