"""What can be counted of how the package is built gets no worse. The numbers may only fall: whoever mends something lowers them."""

import ast
from pathlib import Path

import pytest

from . import house


@pytest.mark.slow
def test_hardly_anybody_uses_private_names_of_another_object() -> None:
    assert len(house.private_names()) <= 22, "\n".join(house.private_names())


@pytest.mark.slow
def test_hardly_any_files_import_each_other_in_a_circle() -> None:
    assert len(house.circles()) <= 1, house.circles()


@pytest.mark.slow
def test_no_part_has_more_fields_than_one_can_keep_in_mind() -> None:
    assert house.large_classes() == {}


def test_a_header_says_something_or_nothing() -> None:
    assert house.empty_headers() == []


def test_every_long_module_of_the_core_has_tests_of_its_own() -> None:
    assert house.untested() == []


def _classes(text: str) -> list[ast.ClassDef]:
    return [node for node in ast.parse(text).body if isinstance(node, ast.ClassDef)]


def test_fields_are_counted_wherever_they_are_set() -> None:
    (cls,) = _classes(
        "class A:\n"
        "    declared: int\n"
        "    shared: ClassVar[int]\n"
        "    def __init__(self): self.made, other.else_ = 1, 2\n"
        "    async def later(self): self.late += 1\n"
    )
    assert house.fields_of(cls) == {"declared", "made", "late"}


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package of four files: one hands names on, two use each other, one reaches into another."""
    monkeypatch.setattr(house, "PACKAGE", tmp_path)
    for name, text in {
        "room/__init__.py": "from .one import One",
        "room/one.py": "if TYPE_CHECKING:\n    from ..two import Two\nclass One:\n    pass",
        "two.py": "from .room import One\nclass Two:\n    pass",
        "three.py": "from .two import Two\n"
        "class Three:\n"
        "    def same(self, other): return other._mine + other._theirs + row._replace(a=1) + self._x._y\n"
        "    def set(self): self._mine = 1\n",
    }.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def test_a_circle_is_found_through_a_package_and_through_types(package: Path) -> None:
    assert house.circles() == [["room/one.py", "two.py"]]


def test_a_class_may_use_its_own_private_names_on_its_like(package: Path) -> None:
    assert house.private_names() == ["three.py:3: other._theirs", "three.py:3: self._x._y"]
