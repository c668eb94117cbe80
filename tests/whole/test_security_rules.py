"""What attacks on other clients have taught, as rules that the whole package keeps.

Each test names the lesson. Bounds of single parsers stand with their own tests: frames (``network/test_frames.py``), codecs
(``records/test_codecs.py``), SCRAM (``network/sasl/test_scram.py``), counts inside messages (``wire/test_primitives.py``).
"""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from ..effort import for_each

PACKAGE = Path(__file__).parents[2] / "kafka_async"
FILES = sorted(path.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*.py"))

ONLY_AT_THE_EDGE = {
    "config/sources.py": "the program names the prefix of the variables, or the file",
    "config/stores.py": "an option names the store",
    "adapters/": "a person's own program, or a command of his, names the file",
    "network/tls.py": "an option names the file",
    "network/sasl/assertion.py": "options name the files",
    "network/sasl/kerberos.py": "an option names the keytab",
    "records/implementation.py": "the switch to the Python decoder, before any consumer exists",
}
"""Where files, variables and processes may be met, and why."""

MADE_OF_OUR_OWN = {
    "wire/compiler.py": {"compile", "exec"},  # functions made of the field names of our own messages, as attrs makes __init__
    # The author of a job names a function of his own, module:callable: options of a job are texts, and nobody else writes them.
    "adapters/spark/options/secrets.py": {"importlib.import_module"},
    "adapters/workers/entry.py": {"importlib.import_module"},  # the program that a person names on the command line
    "lazy.py": {"import_module"},  # modules of this package, by tables in its own files
    "adapters/cli/commands.py": {"import_module"},  # the same
}


@cache
def nodes(name: str) -> tuple[ast.AST, ...]:
    """Return everything that is in a file."""
    return tuple(ast.walk(ast.parse((PACKAGE / name).read_text())))


def calls(name: str) -> Iterator[str]:
    """Yield the dotted name of everything that a file calls."""
    for node in nodes(name):
        if isinstance(node, ast.Call):
            yield ast.unparse(node.func)


def imports(name: str) -> Iterator[str]:
    """Yield the absolute modules that a file imports, also inside functions."""
    for node in nodes(name):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
            yield node.module


def at_the_edge(name: str) -> bool:
    return any(name.startswith(edge) for edge in ONLY_AT_THE_EDGE)


BETWEEN_PROCESSES = {
    "adapters/tables/worker.py": {"pickle"},  # what the process that started it hands to it
    "adapters/tables/workers.py": {"pickle", "subprocess"},
    "adapters/workers/supervisor.py": {"subprocess"},
}
"""A process hands another one of its own what to do. Nothing comes back but JSON and Arrow's columns."""


def test_nothing_that_a_worker_sends_becomes_an_object() -> None:
    assert not [call for call in calls("adapters/tables/workers.py") if call.startswith("pickle.") and call != "pickle.dumps"]


@pytest.mark.slow
@for_each(FILES)
def test_nothing_that_arrives_can_become_code(name: str) -> None:
    """CVE-2023-25194, CVE-2025-27818, CVE-2025-27819: configuration that names classes to load."""
    forbidden = {"pickle", "marshal", "shelve", "dill", "yaml", "subprocess", "pty", "code", "runpy", "xmlrpc"}
    assert {module.split(".")[0] for module in imports(name)} & forbidden == BETWEEN_PROCESSES.get(name, set())
    dangerous = {"eval", "exec", "compile", "__import__", "os.system", "os.popen", "import_module", "importlib.import_module"}
    met = {call for call in calls(name) if call in dangerous or call.startswith(("os.exec", "os.spawn"))}
    assert met == MADE_OF_OUR_OWN.get(name, set())


@pytest.mark.slow
@for_each(FILES)
def test_no_file_is_opened_and_no_variable_read_but_where_a_person_says_so(name: str) -> None:
    """CVE-2024-31141, CVE-2025-27817: values that name files, variables and URLs to read."""
    if at_the_edge(name):
        return
    reading = {"open", "os.getenv", "os.environ.get", "io.open", "anyio.open_file", "Path", "tempfile"}
    assert not {call for call in calls(name) if call in reading or call.endswith((".read_text", ".read_bytes", ".open_file"))}
    assert "environ" not in {node.attr for node in nodes(name) if isinstance(node, ast.Attribute)}


@pytest.mark.slow
@for_each(FILES)
def test_no_url_is_fetched_by_what_speaks_to_brokers(name: str) -> None:
    """CVE-2025-27817: a URL from a broker, a token or a message is never followed. Only an option names one."""
    web = {"urllib.request", "http.client", "requests", "aiohttp", "httpx", "httpx2", "ftplib"}
    met = set(imports(name)) & web
    assert not met or name.startswith(("adapters/", "network/sasl/")), "only the token endpoint of an option (KIP-768)"


@for_each(FILES)
def test_certificates_are_not_waved_through(name: str) -> None:
    """TLS verifies unless the caller brings a context of his own or turns the name check off by name."""
    names = {node.attr for node in nodes(name) if isinstance(node, ast.Attribute)}
    assert not names & {"CERT_NONE", "CERT_OPTIONAL", "_create_unverified_context", "PROTOCOL_TLSv1", "PROTOCOL_SSLv23"}


@for_each([name for name in FILES if name.startswith("network/sasl/")])
def test_proofs_are_compared_in_constant_time(name: str) -> None:
    """CVE-2021-38153, CVE-2024-56128."""
    compared = {
        ast.unparse(side)
        for node in nodes(name)
        if isinstance(node, ast.Compare) and any(isinstance(operator, ast.Eq | ast.NotEq) for operator in node.ops)
        for side in (node.left, *node.comparators)
    }
    assert not {text for text in compared if any(word in text for word in ("signature", "proof", "password", "key", "token"))}


@for_each([name for name in FILES if name.startswith("network/sasl/")])
def test_randomness_that_must_not_be_guessed_is_the_systems(name: str) -> None:
    """A nonce that can be guessed lets a recorded login be replayed. ``random.random`` is for jitter."""
    assert not {call for call in calls(name) if call.startswith("random.")} - {"random.random"}
