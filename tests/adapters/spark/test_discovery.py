"""What is installed so that Spark finds the source by itself."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
SETUPTOOLS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
MAPPED: dict[str, str] = SETUPTOOLS["package-dir"]


def test_every_package_is_installed() -> None:
    found = {path.parent.relative_to(ROOT) for path in (ROOT / "kafka_async").rglob("__init__.py")}
    mapped = {Path(folder) for folder in MAPPED.values()}
    names = {".".join(path.parts) for path in found - mapped} | MAPPED.keys()
    assert set(SETUPTOOLS["packages"]) == names


@pytest.mark.brokers
def test_spark_finds_the_source_in_the_module_that_it_looks_for(tmp_path: Path) -> None:
    pytest.importorskip("pyspark", reason="PySpark is not installed: pip install '.[spark]'")
    for name, folder in MAPPED.items():
        (tmp_path / name).symlink_to(ROOT / folder)  # as the installed package is
    look = (
        "from pkgutil import iter_modules; from importlib import import_module;"
        "[name] = [m.name for m in iter_modules() if m.name.startswith('pyspark_kafka')];"
        "print(import_module(name).DefaultSource.name())"
    )
    done = subprocess.run(  # noqa: S603  # our own words
        [sys.executable, "-c", f"import sys; sys.path[:0] = [{str(tmp_path)!r}, {str(ROOT)!r}]; {look}"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "kafka_async"


@pytest.mark.brokers
def test_looking_at_the_package_does_not_need_pyspark() -> None:
    look = "import sys; import kafka_async.spark; print(*(name for name in sys.modules if name.startswith('pyspark')))"
    done = subprocess.run([sys.executable, "-c", look], cwd=ROOT, capture_output=True, text=True, check=True)  # noqa: S603  # our own words
    assert done.stdout.split() == []
