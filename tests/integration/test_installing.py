"""What people install: the archive of the source, and the wheel that is made of it elsewhere, each where there is no compiler.

Nothing is fetched: what the build needs is installed here.
"""

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.brokers  # starts programs

ROOT = Path(__file__).parents[2]
MADE = shutil.ignore_patterns("*.so", "*.c", "*.pyd", "__pycache__", "*.egg-info", "build", "dist", ".*")
OFFLINE = ("--quiet", "--disable-pip-version-check", "--no-index", "--no-deps", "--no-build-isolation")
TOP = {"PKG-INFO", "README.md", "kafka_async", "kafka_async_consumer.egg-info", "pyproject.toml", "setup.cfg"}
READING = """
import asyncio
import sys

sys.path.insert(0, sys.argv[1])
from kafka_async import KafkaConsumer, records
from kafka_async.testing import Cluster


async def main() -> None:
    cluster = Cluster()
    cluster.topic("orders")
    for number in range(3):
        cluster.produce("orders", value=b"%d" % number)
    async with KafkaConsumer("orders", auto_offset_reset="earliest", **cluster.options()) as consumer:
        values = [(await consumer.getone()).value for _ in range(3)]
    print(records.__file__, records.IMPLEMENTATION, values)


asyncio.run(main())
"""


def _run(*command: str | Path, cwd: Path, compiler: bool = False) -> str:
    """Run a command and return what it writes. Without a compiler, nothing that can compile is in the path."""
    environment = {
        name: value for name, value in os.environ.items() if name not in ("CC", "CXX", "CFLAGS", "PYTHONPATH", "LDSHARED")
    }
    environment |= {"CFLAGS": "-O0"} if compiler else {"PATH": str(cwd)}
    done = subprocess.run(  # noqa: S603  # commands of this file
        list(map(str, command)), cwd=cwd, env=environment, capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The archive of the source, made of a copy of what is committed here."""
    clone = tmp_path_factory.mktemp("clone")
    for name in ("pyproject.toml", "README.md"):
        shutil.copy(ROOT / name, clone / name)
    for name in ("kafka_async", "tests"):
        shutil.copytree(ROOT / name, clone / name, ignore=MADE)
    _run(sys.executable, "-c", "from setuptools.build_meta import build_sdist; build_sdist('dist')", cwd=clone)
    (made,) = (clone / "dist").iterdir()
    return made


@pytest.fixture(scope="module")
def wheel(sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, made of the source archive by the command that the README has."""
    folder = tmp_path_factory.mktemp("elsewhere")
    with tarfile.open(sdist) as archive:
        archive.extractall(folder, filter="data")
    (source,) = folder.iterdir()
    _run(sys.executable, "-m", "pip", "wheel", *OFFLINE, "-w", "dist", ".", cwd=source, compiler=True)
    (made,) = (source / "dist").iterdir()
    return made


def test_the_archive_has_all_that_the_package_is_made_of_and_no_tests(sdist: Path) -> None:
    with tarfile.open(sdist) as archive:
        names = [Path(*Path(name).parts[1:]) for name in archive.getnames()]
    assert {name.parts[0] for name in names if name.parts} == TOP
    package = ROOT / "kafka_async"
    wanted = {
        path.relative_to(ROOT)
        for path in package.rglob("*")
        if path.suffix in (".py", ".pyx", ".yaml", ".typed") or (path.suffix == ".md" and path.name != "README.md")
    }
    assert wanted - set(names) == set()
    assert not [name for name in names if name.suffix in (".c", ".so", ".pyc")]


def test_the_wheel_has_the_compiled_modules_and_no_tests(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    compiled = sorted(name.split(".")[0] for name in names if name.endswith(".so"))
    assert compiled == [
        "kafka_async/adapters/values/_avro_bulk",
        "kafka_async/application/reading/_iteration",
        "kafka_async/records/_decode",
    ]
    assert {name.split("/")[0].split("-")[0] for name in names} == {"kafka_async", "pyspark_kafka_async", "kafka_async_consumer"}


def _installed(archive: Path, folder: Path) -> str:
    """Install an archive where there is no compiler, and return what a program that reads records says then."""
    _run(sys.executable, "-m", "pip", "install", *OFFLINE, "--target", folder / "site", archive, cwd=folder)
    return _run(sys.executable, "-W", "error", "-c", READING, folder / "site", cwd=folder)


def test_the_wheel_installs_where_there_is_no_compiler_and_its_compiled_decoder_reads(wheel: Path, tmp_path: Path) -> None:
    said = _installed(wheel, tmp_path)
    assert said == f"{tmp_path}/site/kafka_async/records/__init__.py cython [b'0', b'1', b'2']\n"


def test_the_archive_installs_where_there_is_no_compiler_and_the_decoder_in_python_reads(sdist: Path, tmp_path: Path) -> None:
    said = _installed(sdist, tmp_path)
    assert said == f"{tmp_path}/site/kafka_async/records/__init__.py python [b'0', b'1', b'2']\n"
