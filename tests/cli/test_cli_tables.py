"""Tables with slips, by the command line: each message names the place and an option that helps."""

import csv
from pathlib import Path

import pytest
from PIL import Image

COLUMNS = ("--bag", "district", "--count", "n_yes")
LINEAR = ("--network", "linear", "--epochs", 1)


def rows_of(path: str) -> list[dict[str, str]]:
    with Path(path).open() as file:
        return list(csv.DictReader(file))


@pytest.fixture
def fit(llpkit):
    """Fit a table given as text, with further options, into the folder ``run``."""

    def run(text: str, *options: object, columns=COLUMNS):
        Path("t.csv").write_text(text)
        return llpkit("fit", "t.csv", *columns, *LINEAR, "--force", "--out", "run", *options)

    return run


# Options by their names here


def test_an_empty_count_is_told_what_to_type(fit, llpkit):
    table = "district,n_yes,age\na,1,30\na,1,40\nb,,50\nb,,60\n"
    done = fit(table)
    assert done.code == 2
    assert "row 3 (header not counted), column 'n_yes' is empty; give the count" in done.err
    advice = ("--count-low", "n_yes", "--count-high", "n_yes")
    assert " ".join(advice) in done.err
    assert fit(table, columns=("--bag", "district", *advice)).code == 0
    assert llpkit("predict", "run", "t.csv", "--out", "p.csv").code == 0
    known, unknown = rows_of("p.csv")[:2], rows_of("p.csv")[2:]
    assert sum(float(row["posterior"]) for row in known) == pytest.approx(1, abs=1e-5)
    for row in unknown:
        assert float(row["posterior"]) == pytest.approx(float(row["probability"]), abs=1e-5)


@pytest.mark.parametrize(
    ("rows", "options", "message"),
    [
        (["a,0.5,1", "a,0.5,2"], [], "proportions go in --proportion"),
        (["a,0,1", "a,0,2", "a,0,x"], [], "or keep it a category: --categorical 'my age'"),
        (["a,0,1"], ["--decimals", 2], "--decimals belongs to --proportion"),
        (["a,0,1"], ["--decimals", 13], "--decimals = 13; give a whole number from 0 to 12"),
        (["a,0,1"], ["--proportion", "n_yes"], "with or without --count-low and --count-high"),
        (["a,0,1"], ["--skip-bad"], "--skip-bad goes with an image column"),
        (["a,0,1"], ["--class-name", "no"], "--class-name = ['no']; give 2 names"),
    ],
)
def test_options_in_messages_can_be_typed(fit, rows, options, message):
    done = fit("\n".join(["district,n_yes,my age", *rows]), *options)
    assert done.code == 2
    assert message in done.err
    assert "`" not in done.err


def test_a_table_without_a_bag(llpkit, survey):
    assert "its bag column; give --bag" in llpkit("fit", survey, "--count", "n_yes").err


def test_images_that_are_missing_or_of_another_size(fit, llpkit):
    for name, size in (("a", 8), ("b", 8), ("c", 9)):
        Image.new("L", (size, 8)).save(f"{name}.png")
    columns = ("--bag", "bag", "--count", "n", "--image", "file")
    options = {"columns": columns}
    gone = fit("bag,n,file\np,1,a.png\nq,0,b.png\nr,0,d.png\n", "--network", "mlp", **options)
    assert "with --image-root, or leave its bag out with --skip-bad" in gone.err
    rest = llpkit("fit", "t.csv", *columns, "--skip-bad", "--epochs", 1, "--out", "run")
    assert rest.code == 0, rest.err
    assert "d.png does not exist" in rest.err
    assert "skip" not in rest.err
    other = fit("bag,n,file\np,1,a.png\nq,0,c.png\n", "--network", "mlp", **options)
    assert "c.png is 8 x 9 pixels (height x width) but the first image is 8 x 8;" in other.err
    assert "resized to with --image-size" in other.err
    resized = fit(
        "bag,n,file\np,1,a.png\nq,0,c.png\n", "--image-size", "8x9", "--network", "mlp", **options
    )
    assert resized.code == 0, resized.err
    Path("a.csv").write_text("file\na.png\n")
    wrong = llpkit("predict", "run", "a.csv", "--image-size", "9x8", "--out", "p.csv")
    assert "run learned from 8 x 9; resize them with --image-size 8x9" in wrong.err  # height first


# What training never had


@pytest.mark.parametrize("options", [(*LINEAR, "--lr", 0.1), ("--estimator", "logistic")])
def test_values_that_training_never_had(llpkit, survey, options):
    assert llpkit("fit", survey, *COLUMNS, *options, "--label", "answer", "--out", "run").code == 0
    Path("new.csv").write_text("age,region\n40,north\n40,west\n40,east\n40,\n,north\n")
    done = llpkit("predict", "run", "new.csv", "--out", "p.csv")
    assert done.code == 0, done.err
    place = "new.csv: row {} (header not counted), column"
    assert f"{place.format(2)} 'region' = 'west', which did not occur in training" in done.err
    assert "(2 such rows in all: 'west', 'east')" in done.err
    assert f"{place.format(4)} 'region' is empty, which did not occur in training" in done.err
    assert (
        f"{place.format(5)} 'age' is empty, which did not occur in training; the mean" in done.err
    )
    p = [float(row["probability"]) for row in rows_of("p.csv")]
    assert p[1] == p[2] == p[3]  # no weight of their own
    Path("labelled.csv").write_text("age,region,answer\n40,west,0\n80,north,1\n")
    done = llpkit("evaluate", "run", "labelled.csv", "--json")
    assert "column 'region' = 'west', which did not occur in training" in done.err
    assert done.out.startswith("{")


# Numbers with commas


def test_decimal_commas_of_a_spreadsheet(llpkit, survey, fitted):
    lines = [line.replace(",", ";").split(";") for line in survey.read_text().splitlines()]
    text = "\n".join(";".join([a, n, x if x == "age" else f"{x},5", *r]) for a, n, x, *r in lines)
    Path("new.csv").write_text(text)
    done = llpkit("predict", fitted, "new.csv", "--out", "p.csv")
    assert done.code == 0, done.err
    assert "column 'age' is read with decimal commas, " in done.err
    Path("same.csv").write_text(text.replace(",5", ".5").replace(";", ","))
    assert llpkit("predict", fitted, "same.csv", "--out", "q.csv").code == 0
    assert [r["probability"] for r in rows_of("p.csv")] == [
        r["probability"] for r in rows_of("q.csv")
    ]


def test_thousands_are_refused(fit, llpkit, fitted):
    done = fit('district,n_yes,pay\na,1,"1,311"\na,1,"2,000"\n')
    assert done.code == 2
    assert "row 1 (header not counted), column 'pay' = '1,311' is not a plain number" in done.err
    assert "keep the column a category: --categorical pay" in done.err
    Path("new.csv").write_text('age,region\n"1,311",north\n')
    done = llpkit("predict", fitted, "new.csv", "--out", "p.csv")
    assert done.code == 2
    assert "column 'age' = '1,311' is not a number; write 1311 or 30.5" in done.err


# Columns that are no features


def test_a_column_that_tells_of_the_bag_is_noted(fit):
    rows = [f"d{i // 3},{i // 3 % 2},{3 - i // 3 % 2},{i},{i % 2}" for i in range(30)]
    text = "\n".join(["district,n_yes,n_no,age,sex", *rows])
    done = fit(text)
    assert done.code == 0, done.err
    assert "column 'n_no' is the same in all rows of every bag: it describes the bag" in done.err
    assert "to leave it out, give --drop n_no" in done.err
    assert done.err.count("is the same in all rows of every bag") == 1
    assert "n_no" not in fit(text, "--features", "age", "--features", "n_no").err
    few = fit("\n".join(text.splitlines()[:7]))  # two bags: it may be chance
    assert "n_no" not in few.err


@pytest.mark.parametrize(
    ("column", "what"),
    [("district", "the bag ids"), ("n_yes", "the counts"), ("answer", "labels")],
)
def test_what_is_to_be_learnt_is_no_feature(fit_survey, column, what):
    done = fit_survey("--features", "age", "--features", column)
    assert done.code == 2
    assert f"column '{column}' holds {what}" in done.err
    assert "leave it out of --features" in done.err


# Counts that do not fit, and labels by other names


def test_shares_that_were_rounded(fit):
    rows = ["a,0.5,1", "a,0.5,2", "b,0.33,3", "b,0.33,4", "b,0.33,5"]
    columns = ("--bag", "district", "--proportion", "share")
    text = "\n".join(["district,share,age", *rows])
    done = fit(text, columns=columns)
    assert done.code == 2
    assert (
        "row 3 (header not counted), column 'share' = 0.33 of bag 'b' makes 0.99 of its 3 rows, "
        "not a whole count; if it was rounded, use --decimals 2"
    ) in done.err
    assert fit(text, "--decimals", 2, columns=columns).code == 0
    more = fit(text, "--decimals", 1, columns=columns)
    assert (
        "row 3 (header not counted), column 'share' = 0.33 of bag 'b' has more decimals; use"
        in more.err
    )
    assert "--decimals 2" in more.err
    none = fit(text.replace("0.33", "0.40"), "--decimals", 2, columns=columns)
    assert "makes 1.2 of its 3 rows, not a whole count; check it" in none.err


def test_a_bag_that_was_cut(fit, llpkit, survey, fitted):
    lines = survey.read_text().splitlines()
    rows = rows_of(str(survey))
    row = next(i for i, r in enumerate(rows) if int(r["n_yes"]) > 1)
    text = "\n".join([lines[0], lines[row + 1]])
    Path("part.csv").write_text(text)
    done = llpkit("predict", fitted, "part.csv", "--out", "p.csv")
    assert done.code == 0, done.err
    assert "part.csv: row 1 (header not counted), column 'n_yes' = " in done.err
    assert "needs whole bags and their counts" in done.err
    assert "probability" in rows_of("p.csv")[0]
    assert "posterior" not in rows_of("p.csv")[0]
    refused = fit(text)
    assert refused.code == 2
    assert "; are rows of the bag missing?" in refused.err
    assert llpkit("evaluate", fitted, "part.csv").code == 2


def test_labels_in_words(fit, llpkit, survey, fitted):
    text = "district,n_yes,age,vote\na,1,30,yes\na,1,40,no\n"
    done = fit(text, "--label", "vote")
    assert done.code == 2
    advice = ("--class-name", "no", "--class-name", "yes")
    assert "--class-name NAME --class-name NAME" in done.err
    assert fit(text, "--label", "vote", *advice).code == 0
    words = survey.read_text().replace(",0\n", ",no\n").replace(",1\n", ",yes\n")
    Path("words.csv").write_text(words)
    assert "--class-name NAME --class-name NAME" in llpkit("evaluate", fitted, "words.csv").err
    named = llpkit("evaluate", fitted, "words.csv", *advice, "--json")
    assert (
        named.out.partition('"parts"')[2]
        == (llpkit("evaluate", fitted, survey, "--json").out.partition('"parts"')[2])
    )
    assert llpkit("evaluate", fitted, "words.csv", *advice[:2]).code == 2
