import pytest

pytest.importorskip("rich")

from kafka_async.adapters.cli.tables import AtLeast, Figure, printable, table


def test_columns_are_aligned_and_numbers_stand_on_the_right() -> None:
    text = table(("NAME", "LAG"), [("orders", 5), ("a", 12345), ("b", None)])

    assert text == "NAME       LAG\norders       5\na        12345\nb            -\n"


def test_what_is_unknown_or_empty_is_a_dash() -> None:
    assert table(("A", "B", "C"), [(None, "", "x")]) == "A   B   C\n-   -   x\n"


def test_a_table_without_rows_is_its_header() -> None:
    assert table(("GROUP", "STATE"), []) == "GROUP   STATE\n"


def test_a_number_that_may_be_larger_stands_on_the_right_as_others_do() -> None:
    assert table(("GROUP", "LAG"), [("a", 1000), ("b", AtLeast(5))]).splitlines() == [
        "GROUP    LAG",
        "a       1000",
        "b        >=5",
    ]


def test_a_figure_stands_on_the_right_as_numbers_do() -> None:
    assert table(("LAG", "X"), [(Figure("1,000"), "a"), (Figure("?"), "b")]) == "  LAG   X\n1,000   a\n    ?   b\n"


def test_a_row_for_a_pipe_is_one_line_however_long() -> None:
    long = "x" * 300

    assert table(("A", "B"), [(long, 1)]).splitlines()[1].split() == [long, "1"]


def test_on_a_terminal_a_long_cell_is_folded_and_nothing_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("FORCE_COLOR", "1"), ("COLUMNS", "40"), ("NO_COLOR", "1"), ("TERM", "xterm")):
        monkeypatch.setenv(name, value)

    lines = table(("A", "B"), [("x" * 100, 1)]).splitlines()

    assert "".join(lines).count("x") == 100
    assert max(map(len, lines[1:])) <= 40  # the header is bold, by control codes of ours


def test_text_of_others_is_neither_markup_nor_control_codes() -> None:
    assert "[red]:warning:" in table(("A",), [("[red]:warning:",)])
    assert table(("A",), [("a\x1b[2J\nb\u202e",)]).splitlines()[1] == r"a\x1b[2J\nb\u202e"
    assert printable("größe") == "größe"
