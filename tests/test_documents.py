"""Documents in each format: what is drawn of lines, tables, charts and images, and what is left out."""

import io
import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from selenium.webdriver import Chrome, Keys
from selenium.webdriver.common.by import By
from selenium.webdriver.support.wait import WebDriverWait

from etlrun.report.chart import MOST_BARS, MOST_POINTS, draw
from etlrun.report.doc import (
    Chart,
    Code,
    Col,
    Doc,
    Images,
    Line,
    Lines,
    Link,
    Paragraph,
    Part,
    Picture,
    Section,
    Series,
    Table,
)
from etlrun.report.render import RENDER, fragment, pieces, show, text
from tests.golden import Says
from tests.pages import colour, contrast, opened, screen

EVIL = "<b>*x*</b> `|` [y](z)"
ROWS: list[dict[str, Any]] = [
    {"name": "one", "rate": 1234.5, "status": "completed", "error": ""},
    {"name": EVIL, "rate": None, "status": "completed", "error": "word " * 50},
]
COLUMNS = (
    Col("name", lambda row: row["name"], is_head=True),
    Col("examples/s", lambda row: row["rate"], ",.1f", bar=True),
    Col("status", lambda row: row["status"], differs=("failed",), style=lambda _: "good"),
    Col("nothing", lambda _: None),
    Col("error", lambda row: row["error"], is_long=True),
)
TABLE = Table(ROWS, COLUMNS, title="Rows", sort="examples/s", mark=lambda row: row["rate"] is not None)


def doc_of(*parts: Part, **values: Any) -> Doc:
    return Doc("the result", parts, **values)


def body(*parts: Part) -> str:
    """The page below its heading."""
    return RENDER["html"](doc_of(*parts)).partition("</header>")[2].partition("<script>")[0]


def test_lines_have_their_labels_in_one_column_and_further_lines_below(says: Says) -> None:
    lines: list[Any] = [("result", "0.5")]
    lines += [Line("accuracy of it", "0.9", "(0.8 to 1)", "good"), ("none", ""), ("", "a\nb")]
    assert text(doc_of(Lines(lines))) == "result         0.5\naccuracy of it 0.9 (0.8 to 1)\na\nb\n"
    assert text(doc_of(Lines([("note", "a\nb\x1b")]))) == "note      a\n          b\\x1b\n"
    assert "\x1b[32m0.9 (0.8 to 1)\x1b[0m" in text(doc_of(Lines(lines)), is_coloured=True)
    says(RENDER["md"](doc_of(Lines(lines))))
    assert '<dd class="good">0.9<small>(0.8 to 1)</small></dd>' in body(Lines(lines))


@pytest.mark.smoke
def test_a_table_on_a_terminal_has_no_empty_columns_none_that_are_equal_and_wraps_long_texts(says: Says) -> None:
    says(text(doc_of(TABLE), width=60))
    (line,) = text(doc_of(Table(ROWS, COLUMNS[:1], most=1))).splitlines()[2:]
    assert line == "more      1 rows"
    assert text(doc_of(Table([], COLUMNS), Chart([]), Images([]), Section("none", []))) == ""


def test_what_others_wrote_is_no_markup(says: Says) -> None:
    rows = RENDER["md"](doc_of(TABLE)).splitlines()[2:]
    says(rows[2:5])
    told = "&#60;b>&#42;x&#42;&#60;/b> &#96;\\|&#96; &#91;y](z)"
    assert rows[5].startswith(f"| {told} | - | completed | word word")
    whole = [Lines([(EVIL, EVIL)]), Paragraph(EVIL, title=EVIL), Code(EVIL), Images([Picture("x", EVIL, EVIL)])]
    assert "<b>" not in RENDER["html"](doc_of(TABLE, *whole, over=EVIL, foot=EVIL, badge=(EVIL, "good")))
    assert "<b>" not in fragment(doc_of(Chart([Series(EVIL, [(0, 0)])], title=EVIL, x=EVIL)))
    assert RENDER["md"](doc_of(Code("a\n```\nb", language="yaml"))).endswith("````yaml\na\n```\nb\n````\n")
    code = Table([["a`b|"]], [Col("code", lambda row: row[0], is_code=True)])
    assert RENDER["md"](doc_of(code)).endswith("| `` a`b\\| `` |\n")
    assert "| a\\|b |\n| --- |\n" in RENDER["md"](doc_of(Table(["c"], [Col("a|b", str)])))


def test_a_page_sorts_by_exact_values_and_marks_rows() -> None:
    page = body(TABLE)
    assert '<th scope="col" class="figure bar" aria-sort="descending"><button type="button">examples/s' in page
    assert '<tr class="chosen"><th scope="row">one</th><td class="figure bar" data-value="1234.5"' in page
    assert 'style="--bar: 100.0%">1,234.5</td><td class="good">completed</td>' in page
    assert "nothing" not in page
    notebook = fragment(doc_of(TABLE))
    assert "<button" not in notebook
    assert "<script" not in notebook


def test_a_page_has_a_script_only_if_there_is_something_to_do_and_says_which_one_may_run() -> None:
    assert "script" not in RENDER["html"](doc_of(Lines([("a", "b")]), Section("s", [Code("c")])))
    parts: Sequence[Part] = (TABLE, Code("x", is_copied=True), Section("s", [TABLE]))
    for part in parts:
        page = RENDER["html"](doc_of(part))
        assert "script-src 'sha256-" in page
        assert page.count("</script>") == 1


def test_pictures_stand_in_cells_and_are_drawn_one_after_another(says: Says) -> None:
    pictures = [Picture("data:image/png;base64,AA", "a\nb", "shown", 2, 1), Picture("", "no image")]
    column = Col("at", lambda row: row, note="float32\n0 to 1")
    assert '<img src="data:image/png;base64,AA" alt="shown" width="2" height="1"><figcaption>a\nb<' in body(
        Table([pictures], [column])
    )
    assert "<small>float32</small><small>0 to 1</small>" in body(Table([pictures], [column]))
    made = []

    def one_by_one() -> Any:
        for number in range(3):
            made.append(number)
            yield Picture(f"data:{number}")

    page = pieces(doc_of(Images(one_by_one())))
    next(piece for piece in page if "data:0" in piece)
    assert made != [0, 1, 2]
    says(RENDER["md"](doc_of(Images(pictures), Images([Picture("a b.png", "", "alt")]))))


def test_links_and_folded_parts(says: Says) -> None:
    part = Lines([("page", Link("a page", "https://x.org/a b.html"))], title="More", is_folded=True)
    says(RENDER["md"](doc_of(part, over="Run")).splitlines()[2:])
    assert '<a href="https://x.org/a b.html">a page</a>' in body(part)
    assert text(doc_of(part)) == "page      a page\n"


def test_parts_are_for_the_formats_that_they_name() -> None:
    doc = doc_of(*(Paragraph(f"for {name}", only=[name]) for name in ("text", "md", "html", "notebook")))
    drawn = {"text": text(doc), "md": RENDER["md"](doc), "html": RENDER["html"](doc), "notebook": fragment(doc)}
    assert {name: re.findall("for [a-z]+", of.partition("</style>")[2] or of) for name, of in drawn.items()} == {
        name: [f"for {name}"] for name in drawn
    }


@pytest.mark.smoke
def test_rows_are_json_with_their_values() -> None:
    assert json.loads(RENDER["json"](doc_of(Section("s", [TABLE]))))[0]["examples/s"] == 1234.5
    assert RENDER["json"](doc_of(TABLE, json=lambda: {"a": (1, None)})) == '{\n  "a": [\n    1,\n    null\n  ]\n}\n'


@pytest.mark.parametrize(("variables", "is_coloured"), [({}, False), ({"FORCE_COLOR": "1"}, True),
                                                        ({"FORCE_COLOR": "1", "NO_COLOR": "1"}, False)])  # fmt: skip
def test_it_is_printed_in_colours_where_they_are_wanted(
    variables: dict[str, str], *, is_coloured: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("FORCE_COLOR", "TTY_COMPATIBLE", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("COLUMNS", "20")  # which are those of a terminal
    words = Table(["one two three four five six"], [Col("", str, is_long=True)])
    show(doc_of(Section("t", [words], style="bad")))
    title = "\x1b[1;31mt\x1b[0m" if is_coloured else "t"
    assert capsys.readouterr().out == (f"{title}\n  one two three four five six\n")


def svg_of(chart: Chart) -> str:
    return "".join(re.findall("<svg.*?</svg>", RENDER["html"](doc_of(chart)), re.DOTALL))


def test_a_chart_says_what_it_leaves_out_and_what_is_no_number() -> None:
    whole = [(float(x), float(x)) for x in range(1, 1002)]
    long = Chart([Series("train", whole)], title="loss", x="epoch")
    assert draw(long).note == "251 of 1,001 points of train are drawn."
    svg = svg_of(long)
    assert svg.count("L") + svg.count("M") - svg.count("M66 ") == 251 <= MOST_POINTS
    stacked = Chart([Series("a", [(n, 1.0) for n in range(1000)], mark="bar")], x="epoch")
    assert draw(stacked).note == "100 of 1,000 points of a are drawn."
    assert svg_of(stacked).count("z") == MOST_BARS
    values = [1.0, float("nan"), 2.0, float("inf")]
    gaps = Chart([Series("train", [*enumerate(values, 1)])], title="loss", x="epoch")
    assert draw(gaps).note == "train loss: not a finite number in 2 of 4 epochs, first in 2."
    assert svg_of(gaps).count('<circle class="dot first"') == 2
    assert 'aria-label="loss. train: 1 to 2, minimum 1, maximum 2"' in svg_of(gaps)
    nothing = Chart([Series("train", [(1, None)])], title="loss", x="epoch")
    assert draw(nothing).note == "train loss: not a finite number in 1 of 1 epochs, first in 1."
    assert svg_of(nothing) == ""


@pytest.mark.parametrize("values", [[0.0], [1e299, -1e299], [1e-320, 2e-320], [5.0, 5.0], [1e308, 1.0], [1e9, 1e9 + 1]])
@pytest.mark.parametrize("mark", ["line", "dot", "cloud", "bar"])
def test_any_values_can_be_drawn(values: list[float], mark: str) -> None:
    points: list[Any] = [*enumerate(values, 1)]
    svg = svg_of(Chart([Series("train", points, mark=mark)], x="epoch"))
    assert svg
    assert not re.search("nan|inf", svg)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page with all that readers do something with."""
    path = tmp_path_factory.mktemp("documents") / "page.html"
    rows = [("b", 10.0, "better"), ("a", 9.5, "tied"), ("c", None, "tied"), ("d", 100.0, "worse")]
    table = Table(
        rows,
        [
            Col("name", lambda row: row[0], is_head=True),
            Col("rate", lambda row: row[1], ",.0f", bar=True),
            Col("result", lambda row: row[2], style=lambda row: "bad" if row[2] == "worse" else ""),
            Col("shown", lambda _: [Picture("", "no image")], note="float32"),
            *(Col(f"column {number}", lambda _: "some more text of a wide table") for number in range(8)),
        ],
        title="Rows",
        sort="rate",
        mark=lambda row: row[0] == "b",
        words=lambda row: f"key={row[0]}",
        note="A note.",
    )
    lines = [Line("state", "failed", "since", "bad"), Line("page", Link("a page", "a.html"))]
    parts = [
        Lines(lines), Code("etlrun a=1 'b=2 3'", is_copied=True), table,
        Chart([Series("a", [(1, 1), (2, 2)]), Series("b", [(1, 2), (2, 1)], "second")], title="loss", note="Drawn."),
    ]  # fmt: skip
    path.write_text(RENDER["html"](doc_of(*parts, over="Rows of a test")))
    return path


@pytest.fixture
def page(browser: Chrome, file: Path) -> Iterator[Chrome]:
    with opened(browser, file):
        yield browser


def shown(page: Chrome) -> list[str]:
    rows = page.find_elements(By.CSS_SELECTOR, "table.sorted tbody tr")
    return [row.find_element(By.TAG_NAME, "th").text for row in rows if row.is_displayed()]


def test_columns_are_sorted_with_the_keyboard_by_their_values_and_what_is_unknown_is_last(page: Chrome) -> None:
    heads = page.find_elements(By.CSS_SELECTOR, "table.sorted thead button")
    for number, key, orders in ((1, Keys.ENTER, ["abdc", "dbac"]), (0, Keys.SPACE, ["abcd", "dcba"])):
        for order, rows in zip(("ascending", "descending"), orders, strict=True):
            heads[number].send_keys(key)
            (head,) = page.find_elements(By.CSS_SELECTOR, "th[aria-sort]")
            assert (head.get_attribute("aria-sort"), "".join(shown(page))) == (order, rows)


def test_rows_are_filtered_by_words(page: Chrome) -> None:
    words, said = page.find_element(By.CLASS_NAME, "words"), page.find_element(By.CLASS_NAME, "shown")
    words.send_keys("TIED key=")
    assert (shown(page), said.text) == (["a", "c"], "2 of 4")
    assert said.get_attribute("aria-live") == "polite"
    words.send_keys(" nowhere")
    assert (shown(page), said.text) == ([], "0 of 4")


def test_code_is_copied(page: Chrome) -> None:
    grant = {"permissions": ["clipboardReadWrite", "clipboardSanitizedWrite"]}
    page.execute_cdp_cmd("Browser.grantPermissions", grant)
    page.find_element(By.CLASS_NAME, "copy").send_keys(Keys.ENTER)
    WebDriverWait(page, 30).until(lambda _: page.find_element(By.CLASS_NAME, "copied").text == "Copied")
    words = page.find_element(By.CLASS_NAME, "words")
    words.send_keys(Keys.CONTROL, "v")
    assert words.get_attribute("value") == "etlrun a=1 'b=2 3'"


def test_text_is_readable_in_light_and_in_dark(page: Chrome) -> None:
    papers = set()
    for scheme in ("light", "dark"):
        feature = {"name": "prefers-color-scheme", "value": scheme}
        page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})
        paper = colour(page, "body", "backgroundColor")
        papers.add(paper)
        for what in (
            "h1", ".over", ".note", "td", "td.bad", "dd.bad", "dt", "small", "a", ".legend", "thead button",
            "figcaption",
        ):  # fmt: skip
            assert contrast(colour(page, what, "color"), paper) >= 4.5, (scheme, what)
        assert contrast(colour(page, "svg text", "fill"), paper) >= 4.5
        behind = colour(page, "thead th", "backgroundColor")
        assert min(contrast(colour(page, f"thead {what}", "color"), behind) for what in ("button", "small")) >= 4.5
        assert contrast(colour(page, ".copy", "color"), colour(page, ".copy", "backgroundColor")) >= 4.5
    assert len(papers) == 2


def test_a_phone_scrolls_tables_and_not_the_page(page: Chrome) -> None:
    width = "return document.documentElement.scrollWidth - document.documentElement.clientWidth"
    assert page.execute_script(width) == 0
    page.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen(390))
    assert page.execute_script(width) == 0
    box = "const box = document.querySelector('.scroll'); return box.scrollWidth > box.clientWidth"
    assert page.execute_script(box) is True


def test_paper_shows_all_rows_in_light_and_no_controls(page: Chrome) -> None:
    page.find_element(By.CLASS_NAME, "words").send_keys("nowhere")
    dark = {"media": "print", "features": [{"name": "prefers-color-scheme", "value": "dark"}]}
    page.execute_cdp_cmd("Emulation.setEmulatedMedia", dark)
    controls = page.find_elements(By.CSS_SELECTOR, "input, .copy")
    assert (len(controls), any(control.is_displayed() for control in controls)) == (2, False)
    assert len(shown(page)) == 4
    assert colour(page, "body", "backgroundColor") == (255, 255, 255)


def test_a_marked_row_has_its_bar_as_the_others_have_theirs(page: Chrome) -> None:
    (row,) = page.find_elements(By.CSS_SELECTOR, "tr.chosen")
    head, rate = row.find_element(By.TAG_NAME, "th"), row.find_element(By.CLASS_NAME, "bar")
    assert rate.value_of_css_property("background-image").startswith("linear-gradient")
    assert rate.value_of_css_property("background-color") == head.value_of_css_property("background-color")


def test_a_table_has_a_shade_at_the_side_where_it_goes_on(page: Chrome) -> None:
    box = page.find_element(By.CLASS_NAME, "scroll")
    for share, is_shaded in ((0, (False, True)), (0.5, (True, True)), (1, (True, False))):
        page.execute_script(
            "const [of, share] = arguments; of.scrollLeft = share * (of.scrollWidth - of.clientWidth)", box, share
        )
        row = np.asarray(Image.open(io.BytesIO(box.screenshot_as_png)).convert("L"))[115]
        assert tuple(bool(row[at] < 240) for at in (2, -3)) == is_shaded, share
