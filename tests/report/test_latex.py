import re
import shutil
import subprocess
from dataclasses import replace

import pytest
from markdown_it import MarkdownIt

from sigmazero.report.tables import layout
from sigmazero.report.tables.latex import escape, to_latex
from sigmazero.report.tables.render import to_markdown
from tests.report.test_layout import FIXED, INF, MINIMUM, cell, compare

NASTY = ["a_b&<script>", "50%$x^2~#{y}\\", "[0] *", "|`\"--''", "line\nbreak", "naïve σ 中 \x07"]
CELLS = [*MINIMUM, *(cell(name, attack, [3, 9, INF, 60]) for name in NASTY for attack in ("fmn", name))]
COMMANDS = (
    r"\\(?:textbackslash|textasciitilde|textasciicircum|textless|textgreater|textbar){}"
    r"|\$(?:\\infty|\\sigma|-)\$|\\[&%$#_{}]"
)


def strict(text: str) -> list[list[str]]:
    """The cells of the one table; fails on anything that LaTeX would trip over."""
    stack = []
    for kind, name in re.findall(r"\\(begin|end){(\w+)}", text):
        stack.append(name) if kind == "begin" else None
        assert kind == "begin" or stack.pop() == name
    assert not stack
    spec = re.search(r"\\begin{tabular}{([lr]+)}\n\\toprule\n(.*)\\bottomrule\n\\end{tabular}", text, re.DOTALL)
    assert spec
    lines = [line for line in spec[2].splitlines() if line != r"\midrule"]
    rows = []
    for line in lines:
        assert line.endswith(r" \\")
        cells = re.split(r"(?<!\\)&", line.removesuffix(r" \\"))
        assert len(cells) == len(spec[1])
        rows.append([each.strip() for each in cells])
        for each in rows[-1]:
            plain(each)
    plain(re.search(r"\\caption{(.*)}\n", text)[1])
    return rows


def plain(text: str) -> None:
    bare = re.sub(r"^\\textbf{(.*)}$", r"\1", text)
    bare = re.sub(COMMANDS, "", bare)
    bare = re.sub(r"{(?:''|`|\[|\]|\*|)}", "", bare)
    assert not re.search(r"[\\&%$#_{}~^<>|`\"\[\]*∞–−\n]", bare), text


@pytest.mark.parametrize("compared", [False, True])
def test_structure_is_strict(compared):
    made = layout.build("minimum-norm", CELLS)
    rows = strict(to_latex(compare(made) if compared else made))
    assert len(rows) == 1 + len(CELLS)
    assert rows[1][:2] == ["M1", "bb"]
    assert r"$\infty$" in rows[1]
    assert r"\textbf{25}" in rows[3]
    assert any(row[0] == r"a\_b\&\textless{}script\textgreater{}" for row in rows)
    strict(to_latex(layout.build("fixed-budget", FIXED)))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("\\", r"\textbackslash{}"),
        ("a--b", "a-{}-b"),
        ("x\n\ny", "x  y"),
        ("[a]", "{[}a{]}"),
        ("100 %", r"100 \%"),
        ("\x00", "{[}U+0000{]}"),
    ],
)
def test_escape(text, expected):
    assert escape(text) == expected


def test_markdown_survives_nasty_names_too():
    text = to_markdown(layout.build("minimum-norm", CELLS))
    table = [re.sub(r"\\.", "", line) for line in text.splitlines() if line.startswith("|")]
    assert len(table) == 2 + len(CELLS)
    assert len({line.count("|") for line in table}) == 1
    assert "<script" not in text
    # As a reader of Markdown sees it: one table, its head and a row per cell, nothing spilt beside it.
    page = MarkdownIt("commonmark").enable("table").render(text)
    assert (page.count("<table>"), page.count("<tr>")) == (1, 1 + len(CELLS))
    assert "|" not in re.sub(r"<t[hd]>.*?</t[hd]>", "", page)


def has_latex() -> bool:
    """Whether pdflatex is here with booktabs, which is a package of its own on many systems."""
    if not (shutil.which("pdflatex") and shutil.which("kpsewhich")):
        return False
    return subprocess.run(["kpsewhich", "booktabs.sty"], capture_output=True, check=False).returncode == 0


LONG = [cell(f"M{model}", f"attack {i}", [3, 9, INF, 60]) for model in range(12) for i in range(9)]


def compiled(text: str, folder) -> tuple[int, str]:
    """How many pages LaTeX makes of a document, and its log; the test ends as skipped where there is no LaTeX."""
    assert text.startswith("\\documentclass")
    assert text.rstrip().endswith("\\end{document}")
    if not has_latex():
        pytest.skip("no pdflatex with booktabs here; the structure was parsed instead")
    (folder / "table.tex").write_text(text, encoding="utf-8")
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "table.tex"]
    for _ in range(2):  # longtable learns its widths in the first
        subprocess.run(command, cwd=folder, check=True, capture_output=True)
    log = (folder / "table.log").read_text(encoding="latin-1")
    return int(re.search(r"Output written on table\.pdf \((\d+) page", log)[1]), log


def test_it_compiles(tmp_path):
    pages, _ = compiled(to_latex(compare(layout.build("minimum-norm", CELLS)), standalone=True), tmp_path)
    assert pages == 1


@pytest.mark.parametrize("compared", [False, True])
def test_a_long_table_breaks_over_pages(tmp_path, compared):
    made = layout.build("minimum-norm", LONG)
    made = compare(made) if compared else made
    text = to_latex(made)
    assert text.startswith("% needs \\usepackage{booktabs,longtable}")
    body = text.split(r"\endfoot")[1]
    assert sum(line.endswith(r" \\") for line in body.splitlines()) == len(LONG)
    columns = {len(re.split(r"(?<!\\)&", line)) for line in body.splitlines() if line.endswith(r" \\")}
    assert columns == {len(re.search(r"\\begin{longtable}{([lr]+)}", text)[1])}
    assert r"\begin{table}" in to_latex(layout.build("minimum-norm", LONG[:45]))
    pages, log = compiled(to_latex(made, standalone=True), tmp_path)
    assert pages > 1
    assert "Overfull \\vbox" not in log


@pytest.mark.parametrize("cells", [CELLS, LONG], ids=["short", "long"])
@pytest.mark.parametrize("compared", [False, True])
def test_models_beside_each_other_fit_the_page(tmp_path, cells, compared):
    made = layout.build("minimum-norm", cells)
    made = replace(compare(made) if compared else made, across=2)
    text = to_latex(made)
    assert text.startswith("% needs \\usepackage{booktabs,graphicx}")
    tables = re.findall(r"\\begin{tabular}{([lr]+)}\n\\toprule\n(.*?)\\bottomrule", text, re.DOTALL)
    assert len(tables) == (6 if cells is LONG else 1)
    for spec, body in tables:
        for line in body.splitlines():
            if line.endswith(r" \\"):
                spans = [int(n) for n in re.findall(r"\\multicolumn{(\d+)}", line)]
                plain = len(re.split(r"(?<!\\)&", line)) - len(spans)
                assert plain + sum(spans) == len(spec)
    _, log = compiled(to_latex(made, standalone=True), tmp_path)
    assert "Overfull" not in log
    assert "Float too large" not in log
