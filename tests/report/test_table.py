"""Tables: their cells as they are printed."""

import pytest

from llpkit.report import Column, Interval, PageTable, Spread

ACCURACY = Column("Accuracy", spec=".1f", better="higher")


@pytest.mark.parametrize(
    ("cell", "spec", "text", "small"),
    [
        (1234.5678, ",.1f", "1,234.6", ""),
        (-0.25, "+.1f", "−0.2", ""),
        (7, "d", "7", ""),
        (None, ".1f", "–", ""),
        ("as it is (really)", "", "as it is (really)", ""),
        (Spread(-1.25, 0.5), ".2f", "−1.25 ± 0.50", ""),
        (Spread(1.25), ".2f", "1.25", ""),
        (Interval(-0.04, -1.0, 1.0), "+.1f", "+0.0", "(−1.0 to +1.0)"),
        (Interval(3.0), "+.1f", "+3.0", ""),
        (Interval(52, 36, None), "d", "52", "(36 to never)"),
    ],
)
def test_cells_as_printed(cell, spec, text, small):
    rows = [("mle", [cell]), ("dllp", [1])]
    (head, [shown]), _ = PageTable([Column("X", spec=spec)], rows).body
    assert (head, shown.text, shown.small) == ("mle", text, small)


def test_the_best_are_equal_to_the_printed_digit_and_not_set_apart():
    rows = [("mle", [90.01]), ("direct", [Spread(90.04, 1.0)]), ("dllp", [80.0]), ("all", [99.0])]
    table = PageTable([ACCURACY], [*rows, ("none", [None])], apart=["all"])
    assert [head for head, [cell] in table.body if cell.best] == ["mle", "direct"]
    assert not any(cell.best for _, [cell] in PageTable([ACCURACY], rows[:1]).body)  # no rivals


def test_a_column_without_values_is_not_shown():
    columns = [Column("Gap", spec="d"), Column("None"), Column("Folds", spec="d")]
    table = PageTable(columns, [("mle", [None, None, 3]), ("dllp", [1, None, 2])])
    assert [column.head for column in table.shown] == ["Gap", "Folds"]
    assert [[cell.text for cell in row] for _, row in table.body] == [["–", "3"], ["1", "2"]]


def test_a_narrow_table_stays_a_table_on_a_phone():
    assert not PageTable([ACCURACY], [("mle", [90.0])]).wide
    assert PageTable([ACCURACY] * 6, [("mle", [Spread(90.0, 1.0)] * 6)]).wide
