"""The documents: what they name exists, their links lead somewhere, and their commands and programs can be run."""

import ast
import importlib.util
import re
import shlex
import tomllib
from itertools import chain
from pathlib import Path
from typing import Any, Final

import pytest
from attrs import fields

import kafka_async.errors
from kafka_async import ConsumerConfig, KafkaConsumer
from kafka_async.application.processing.statistics import ProcessingStatistics
from kafka_async.config.consumer_config import NAMES
from kafka_async.model import Statistics

from ..brokers import CURRENT, OLDER, PREVIOUS

ROOT: Final = Path(__file__).parents[2]
README: Final = (ROOT / "README.md").read_text()
DOCUMENTS: Final = sorted(
    path
    for folder in ("", ".github", "benchmarks", "examples", "kafka_async", "tests")
    for path in ((ROOT / folder).rglob("*.md") if folder else ROOT.glob("*.md"))
)
MIGRATING: Final = (ROOT / "kafka_async" / "application" / "MIGRATING.md").read_text()
LONGEST: Final = 200
"""Lines of the README that a newcomer sees; everything else stands beside what it is about."""


def _name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def prose(path: Path) -> str:
    """Return a document without its blocks of code."""
    return "".join(re.split(r"^```.*?^```", path.read_text(), flags=re.DOTALL | re.MULTILINE))


def anchors(path: Path) -> set[str]:
    """Return the anchors that code hosts give the headings of a document."""
    found: dict[str, int] = {}
    names = set()
    for heading in re.findall(r"^#+ (.+)$", prose(path), re.MULTILINE):
        shown = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading)
        slug = re.sub(r"[^\w\- ]", "", shown.lower()).replace(" ", "-")
        names.add(f"{slug}-{found[slug]}" if slug in found else slug)
        found[slug] = found.get(slug, 0) + 1
    return names


def broken(document: Path) -> list[str]:
    """Return the links and pictures of a document that lead nowhere."""
    return [link for link in re.findall(r"\]\(([^)\s]+)\)", prose(document)) if not _leads_somewhere(document, link)]


def _leads_somewhere(document: Path, link: str) -> bool:
    if re.match(r"https?:", link):
        return True
    path, _, anchor = link.partition("#")
    target = document.parent / path if path else document
    if path.startswith("/") or not target.exists() or ROOT not in (target.resolve(), *target.resolve().parents):
        return False
    return not anchor or (target.suffix == ".md" and anchor in anchors(target))


def unlinked(document: Path) -> list[str]:
    """Return the files that a document names without a link to them."""
    bare = re.findall(r"(?<!\[)`([\w./-]+\.\w+)`(?!\])", prose(document))
    return [name for name in bare if any((folder / name).is_file() for folder in (document.parent, ROOT))]


@pytest.mark.parametrize("document", DOCUMENTS, ids=_name)
def test_every_file_that_a_document_names_exists(document: Path) -> None:
    named = set(re.findall(r"`([\w./]+\.(?:py|pyx|md))`", document.read_text()))
    package = ROOT / "kafka_async"
    places = [document.parent, ROOT, package, package / "background", package / "records", ROOT / "tests", ROOT / "examples"]
    assert [path for path in sorted(named) if not any((place / path).exists() for place in places)] == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=_name)
def test_links_lead_somewhere_and_every_file_that_is_named_is_a_link(document: Path) -> None:
    assert broken(document) == []
    assert unlinked(document) == []


def test_what_leads_nowhere_is_found(tmp_path: Path) -> None:
    (ROOT / "README.md").read_text()
    page = ROOT / "tests" / "README.md"
    assert {link: _leads_somewhere(page, link) for link in ("tiers.py", "#the-tests", "../README.md#recipes")} == {
        "tiers.py": True,
        "#the-tests": True,
        "../README.md#recipes": True,
    }
    wrong = ("tiers", "#tests", "../README.md#nothing", "tiers.py#L1", "/tests/tiers.py", "../../..")
    assert [link for link in wrong if _leads_somewhere(page, link)] == []
    named = tmp_path / "page.md"
    named.write_text("`pyproject.toml`, [`README.md`](README.md), `nothing.py`\n```\n`README.md`\n```\n")
    assert unlinked(named) == ["pyproject.toml"]


def test_the_documents_that_are_checked_are_those_that_there_are() -> None:
    names = {_name(path) for path in DOCUMENTS}
    assert {"README.md", "kafka_async/README.md", "tests/README.md", "benchmarks/README.md", ".github/SECURITY.md"} <= names
    built = (ROOT / "kafka_async" / "README.md").read_text()
    assert re.findall(r"`([\w./]+\.py)`", built), "the tables of files are where they are looked for"


def test_the_readme_is_short_and_leads_to_every_other_document() -> None:
    assert len(README.splitlines()) <= LONGEST
    assert [_name(path) for path in DOCUMENTS if _name(path) != "README.md" and f"`{_name(path)}`" not in README] == []


# --- programs and commands -----------------------------------------------------------------------------------------------------

BLOCKS: Final = [
    pytest.param(block, id=f"{_name(document)}-{number}")
    for document in DOCUMENTS
    for number, block in enumerate(re.findall(r"^```python\n(.*?)^```", document.read_text(), re.MULTILINE | re.DOTALL))
]


@pytest.mark.parametrize("block", BLOCKS)
def test_every_program_in_a_document_is_python(block: str) -> None:
    compile(block, "document", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


def commands(document: Path) -> list[list[str]]:
    """Return the commands of a document, in its blocks and within its sentences, as words."""
    text = document.read_text()
    blocks = re.findall(r"^```(\w*)\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    lines = [line.removeprefix("$ ") for language, block in blocks if not language for line in block.splitlines()]
    lines += re.findall(r"(?<!`)`([^`\n]+)`(?!`)", prose(document))
    found = []
    for line in lines:
        if re.match(r"(\.venv/bin/|python3? -m |kafka-async [-a-z])", line):
            words = shlex.split(line, comments=True)
            while "&&" in words:
                found.append(words[: words.index("&&")])
                words = words[words.index("&&") + 1 :]
            found.append(words)
    return found


COMMANDS: Final = [
    pytest.param(words, id=f"{_name(document)}: {' '.join(words)}"[:90]) for document in DOCUMENTS for words in commands(document)
]


@pytest.mark.parametrize("words", COMMANDS)
def test_every_command_in_a_document_can_be_run(words: list[str]) -> None:
    program = words[0].removeprefix(".venv/bin/")
    if program == "kafka-async":
        understood(words[1:])
    elif program == "pip":
        installable(words[1:])
    elif program in ("python", "python3"):
        startable(words[1:])
    else:
        assert program in ("ruff", "mypy", "uvicorn")


def understood(arguments: list[str]) -> None:
    """Have the command line read the arguments, without running the command. Raises an error for wrong ones."""
    pytest.importorskip("typer")
    from typer.main import get_command

    from kafka_async.adapters.cli.commands import app

    command: Any = get_command(app)
    while arguments and arguments[0] in getattr(command, "commands", ()):
        command = command.commands[arguments.pop(0)]
    if arguments and arguments[0] in ("--install-completion", "--version"):  # which would be done while they are read
        assert arguments[0] in {name for option in command.params for name in option.opts}
    else:
        command.make_context("kafka-async", arguments)


def installable(arguments: list[str]) -> None:
    """Check that the extras exist."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for words in arguments:
        if own := re.match(r"(?:\.|/path/to/clone)\[(.+)\]$", words):
            assert set(own[1].split(",")) <= project["optional-dependencies"].keys()


def startable(arguments: list[str]) -> None:
    """Check that the module or the script exists, and so do the files among its arguments, and that it knows its options."""
    script = Path(arguments[0])
    if arguments[0] != "-m":
        assert (ROOT / script).is_file()
        return
    module, *rest = arguments[1:]
    spec = importlib.util.find_spec(module)
    assert spec is not None
    if module == "kafka_async":
        understood(rest)
    if module.split(".")[0] in ("benchmarks", "tests"):
        folder = Path(str(spec.origin)).parent
        source = "".join(path.read_text() for path in folder.glob("*.py")) if spec.submodule_search_locations else ""
        source += Path(str(spec.origin)).read_text()
        assert [word for word in rest if word.startswith("--") and word != "--help" and word.partition("=")[0] not in source] == []
    assert [word for word in rest if "/" in word and word.startswith("tests") and not any(ROOT.glob(word))] == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=_name)
def test_every_option_that_a_document_gives_by_x_is_one(document: Path) -> None:
    given = set(re.findall(r"-X '?([\w.]+)=", document.read_text())) - {"name"}
    assert given - {name for name in given if name.replace(".", "_") in NAMES} == set()


def test_what_takes_the_place_of_another_clients_methods_and_options_exists() -> None:
    ours = [row for row in re.findall(r"^\| .* \| (.*) \|$", MIGRATING, re.MULTILINE) if row != "here"]
    methods = {name for row in ours for name in re.findall(r"`(?:\w+\()*(\w+)\(", row)} - {"KafkaConsumer"}
    options = {name for row in ours for name in re.findall(r"`(\w+)=", row)}
    assert {"getmany", "commit", "seek"} <= methods
    assert [name for name in methods if not hasattr(KafkaConsumer, name)] == []
    assert "fetch_buffer_bytes" in options <= NAMES


def test_context_managers_are_annotated_as_pyright_wants_them_in_strict_mode() -> None:
    """An iterator as the type of what is decorated is deprecated; a generator is right."""
    found = {path: re.findall(r"^```python\n(.*?)^```", path.read_text(), re.MULTILINE | re.DOTALL) for path in DOCUMENTS}
    found |= {path: [path.read_text()] for path in (ROOT / "examples").glob("*.py")}
    decorated = [
        (path.name, node.name, ast.unparse(node.returns or ast.Constant(None)))
        for path, programs in found.items()
        for node in chain.from_iterable(map(_functions, programs))
        if "contextmanager" in "".join(map(ast.unparse, node.decorator_list))
    ]
    assert {("README.md", "lifespan"), ("fastapi_service.py", "lifespan")} <= {(page, name) for page, name, _ in decorated}
    assert [each for each in decorated if not each[2].startswith(("Generator[", "AsyncGenerator["))] == []


def _functions(program: str) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    tree: Any = compile(program, "document", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT | ast.PyCF_ONLY_AST)
    return [node for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))]


def test_an_option_of_confluent_kafka_is_refused_with_what_takes_its_place_on_the_page() -> None:
    part = MIGRATING.split("## From confluent-kafka")[1].split("## From")[0]
    answers: dict[str, str] = {}
    for theirs, place in re.findall(r"^\| (.*) \| (.*) \|$", part, re.MULTILINE):
        names = [name.replace(".", "_") for name in re.findall(r"`(\w+\.[\w.]+|\w+_cb|logger)(?:=\w+)?`", theirs)]
        ours = re.findall(r"`(\w+)=`", place) or [""] * len(names)
        answers |= dict(zip(names, ours, strict=True))
    assert {"sasl_username", "queued_max_messages_kbytes", "enable_partition_eof", "stats_cb"} <= answers.keys()
    for name, answer in answers.items():
        with pytest.raises(TypeError, match=f"unknown option '{name}'; .*{answer}"):
            ConsumerConfig.from_options({name: "1"})


@pytest.mark.slow
@pytest.mark.parametrize(
    ("client", "modules"),
    [
        ("aiokafka", ["consumer", "coordinator", "client.py", "cluster.py", "conn.py"]),
        ("kafka", ["consumer", "coordinator", "net", "cluster.py"]),
    ],
)
def test_the_errors_of_another_client_that_a_consumer_raises_are_here_or_on_the_page(client: str, modules: list[str]) -> None:
    theirs: Any = pytest.importorskip(f"{client}.errors", reason=f"{client} is not installed: pip install '.[test]'")
    root = Path(theirs.__file__).parent
    files = [path for module in modules for path in ([root / module] if module.endswith(".py") else (root / module).rglob("*.py"))]
    source = "".join(path.read_text() for path in files)
    missing = {name for name, each in vars(theirs).items() if isinstance(each, type) and issubclass(each, BaseException)}
    missing -= vars(kafka_async.errors).keys()
    raised = {name for name in missing if re.search(rf"raise (?:Errors\.)?{name}\b|= (?:Errors\.)?{name}\(", source)}
    page = MIGRATING.split("## From kafka-python")[client == "kafka"]
    assert raised
    assert {name for name in raised if f"`{name}`" not in page} == set()


def test_the_errors_that_take_the_place_of_others_exist() -> None:
    part = MIGRATING.split("| aiokafka | here |")[1].split("Errors of producers")[0]
    rows = re.findall(r"^ *\| (.*) \| `(\w+)` \|$", part, re.MULTILINE)
    assert len(rows) == 2
    assert [name for _, name in rows if not hasattr(kafka_async.errors, name)] == []
    theirs: Any = pytest.importorskip("aiokafka.errors", reason="aiokafka is not installed: pip install '.[test]'")
    named = re.findall(r"`(\w+)`", part)
    assert [name for name in named if not hasattr(theirs, name) and not hasattr(kafka_async.errors, name)] == []


def test_what_kafka_python_is_said_to_have_it_has() -> None:
    kafka: Any = pytest.importorskip("kafka", reason="kafka-python is not installed: pip install '.[test]'")
    theirs = " ".join(re.findall(r"^\| (.*) \| .* \|$", MIGRATING.split("## From kafka-python")[1], re.MULTILINE))
    methods = set(re.findall(r"`(\w+)\(", theirs)) - {"next"}
    options = set(re.findall(r"`(\w+)=`", theirs)) - {"timeout_ms"}  # which is an argument
    assert {"poll", "close"} <= methods
    assert {name for name in methods if not hasattr(kafka.KafkaConsumer, name) and not hasattr(kafka, name)} == set()
    assert "selector" in options <= kafka.KafkaConsumer.DEFAULT_CONFIG.keys()


def test_an_option_of_kafka_python_is_ignored_or_refused_as_the_page_says() -> None:
    rows = MIGRATING.split("## From kafka-python")[1].splitlines()
    ignored, refused = (
        {name for row in rows if f"`{what}`" in row for name in re.findall(r"`(\w+)=`", row)}
        for what in ("DeprecationWarning", "TypeError")
    )
    assert "api_version" in ignored
    assert "selector" in refused
    for name in ignored:
        with pytest.warns(DeprecationWarning, match=name):
            ConsumerConfig.from_options({name: 1000})
    for name in refused:
        with pytest.raises(TypeError, match=name):
            ConsumerConfig.from_options({name: 1000})


# --- what a consumer tells -----------------------------------------------------------------------------------------------------


def test_what_a_document_reads_of_statistics_is_in_them() -> None:
    """Those of a consumer and those of what `processing` yields have nothing in common."""
    kinds: dict[str, type] = {"": Statistics, "consumer": Statistics, "run": ProcessingStatistics}
    read = {found for page in DOCUMENTS for found in re.findall(r"(?:(\w+)\.)?statistics\(\)\.(\w+)", page.read_text())}
    assert {("run", "breaker"), ("run", "delayed_until"), ("run", "redelivered")} <= read
    assert {(of, name) for of, name in read if name not in {each.name for each in fields(kinds[of])}} == set()


def test_the_calls_that_any_thread_may_make_are_the_same_wherever_they_are_listed() -> None:
    sync, built = ((ROOT / "kafka_async" / name).read_text() for name in ("SYNC.md", "README.md"))
    looking = set(re.findall(r"`(\w+)`", sync.split("\nCalls that only look ")[1].split(" All other calls ")[0]))
    assert "assigned_once" in looking
    threads = built.split("\n## Threads and event loops\n")[1].split("\n## ")[0].splitlines()
    lists = [line for line in threads if line.startswith(("| `KafkaConsumer` |", "| `kafka_async.sync.KafkaConsumer`, "))]
    assert len(lists) == 2
    assert [looking - set(re.findall(r"`(\w+)`", text)) for text in (*lists, str(KafkaConsumer.__doc__))] == [set()] * 3


# --- versions ------------------------------------------------------------------------------------------------------------------


def test_the_versions_of_kafka_in_the_documents_are_those_that_are_tested() -> None:
    tested = re.search(r"^\| Kafka \| .* \|$", README, re.MULTILINE)
    assert tested is not None
    for text in (tested[0], (ROOT / "tests" / "README.md").read_text()):
        assert CURRENT in text
        assert PREVIOUS in text
        assert OLDER in text


def test_ci_runs_the_test_command_of_the_readme() -> None:
    command = next(line for line in README.splitlines() if line.startswith("python3 -m venv") and "pytest" in line)
    run = (ROOT / ".ci" / "run").read_text().splitlines()

    assert [line for line in run if line in command.split(" && ")] == command.split(" && ")
