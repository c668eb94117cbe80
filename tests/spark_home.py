"""A home for Spark from which its processes start in a fraction of the time: what they run is the installed PySpark.

A run of all tests starts some 20 JVMs of Spark and 200 Python processes, most of which did little else than start.

- Spark gives its Python processes PySpark as ``pyspark.zip``, in which there is no bytecode: each compiles all that it imports, and
  reads the directory of the archive many times. Here that name is a folder with the package as pip installed and compiled it,
  which is what ``kafka_async/adapters/spark/README.md`` advises.
- A JVM takes the classes of Spark, loaded and verified, from an archive (Java's class data sharing).

Decides: what is in that home. Owns its folder of the cache (``KAFKA_ASYNC_CACHE``). Must never be needed by the package itself.
"""

import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from .cache import cache

_ROOT: Final = Path(__file__).parents[1]
_JAVA: Final = "JDK_JAVA_OPTIONS"
_QUIET: Final = "-Xlog:cds=off,cds+dynamic=off"
"""A JVM that cannot use an archive would say so among its output, which other programs read."""


class SparkHomeError(RuntimeError):
    """The archive of Spark's classes could not be made; the message has the end of the output."""


def spark_home() -> Path:
    """Return a Spark home with the installed PySpark, whose Python modules have bytecode."""
    installed = installed_home()
    home = cache() / f"spark-home-{zlib.crc32(str(installed).encode()):08x}"
    with (home.parent / "spark.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for other in home.parent.glob("spark-home-*"):
            if not (other / "bin").exists():  # of an environment that is gone
                shutil.rmtree(other)
        if not home.is_dir():
            with tempfile.TemporaryDirectory(dir=home.parent) as work:
                _link(Path(work) / "home", installed)
                (Path(work) / "home").rename(home)
    return home


def spark_environment(home: Path | None = None) -> dict[str, str]:
    """Return the environment variables of a process that starts Spark, with ``home`` or the one above.

    The archive of classes is made first if there is none; that takes as long as a job of Spark's.
    """
    options = f"-XX:SharedArchiveFile={_class_archive()} {_QUIET}"
    return {"SPARK_HOME": str(home or spark_home()), _JAVA: f"{os.environ.get(_JAVA, '')} {options}".lstrip()}


def installed_home() -> Path:
    """Return the home that comes with PySpark, which most users have."""
    found = find_spec("pyspark")
    if found is None or found.origin is None:
        raise SparkHomeError("PySpark is not installed: pip install '.[spark]'")
    return Path(found.origin).parent


def _link(home: Path, installed: Path) -> None:
    for name in ("bin", "jars", "sbin"):
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).symlink_to(installed / name)
    for archive in (installed / "python" / "lib").glob("*.zip"):
        package = archive.name.partition("-")[0].removesuffix(".zip")
        folder = home / "python" / "lib" / archive.name
        folder.mkdir(parents=True)
        (folder / package).symlink_to(installed.parent / package)


def _class_archive() -> Path:
    """Return the archive of the classes that jobs load, made once for this PySpark and this Java."""
    home, jars = spark_home(), installed_home() / "jars"
    folder = os.environ.get("JAVA_HOME")  # Spark looks there first
    java = Path(shutil.which("java", path=folder and f"{folder}/bin") or "java").resolve()
    # Java takes no archive of other jars than those with which it was made, nor of another Java.
    made_of = [f"{path} {path.stat().st_size} {path.stat().st_mtime_ns}" for path in (java, *sorted(jars.iterdir()))]
    target = home / f"classes-{zlib.crc32(' '.join(made_of).encode()):08x}.jsa"
    with (home / "classes.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not target.is_file():
            for older in home.glob("*.jsa"):
                older.unlink()
            with tempfile.TemporaryDirectory(dir=home) as work:
                archive = Path(work) / "jsa"
                _run_a_job({"SPARK_HOME": str(home), "SPARK_SUBMIT_OPTS": f"-XX:ArchiveClassesAtExit={archive} {_QUIET}"}, archive)
                archive.rename(target)
    return target


def _run_a_job(more: Mapping[str, str], archive: Path) -> None:
    """Run an example, a streaming job against a simulated cluster. Its JVM writes the archive as it ends."""
    environment = {name: text for name, text in {**os.environ, **more}.items() if name != "PIPELINE"}
    command = [sys.executable, "-m", "examples.spark_pipeline"]
    done = subprocess.run(command, cwd=_ROOT, env=environment, capture_output=True, text=True, check=False)  # noqa: S603  # ours
    if done.returncode or not archive.is_file():
        raise SparkHomeError(f"{' '.join(command)} made no archive of Spark's classes:\n{(done.stdout + done.stderr)[-4000:]}")
