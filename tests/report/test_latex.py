import re
import shutil
import subprocess

import pytest

from sigmazero.report import layout, published
from sigmazero.report.latex import escape, to_latex
from sigmazero.report.render import to_markdown
from tests.report.test_layout import FIXED, INF, MINIMUM, cell

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
    plain(re.search(r"\\caption{(.*)}\n", text)[1])  # type: ignore[index]
    return rows


def plain(text: str) -> None:
    bare = re.sub(r"^\\textbf{(.*)}$", r"\1", text)
    bare = re.sub(COMMANDS, "", bare)
    bare = re.sub(r"{(?:''|`|\[|\]|\*|)}", "", bare)
    assert not re.search(r"[\\&%$#_{}~^<>|`\"\[\]*∞–−\n]", bare), text


@pytest.mark.parametrize("compare", [False, True])
def test_structure_is_strict(compare):
    made = layout.build("minimum-norm", CELLS)
    rows = strict(to_latex(published.compare(made) if compare else made))
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


def has_latex() -> bool:
    """Whether pdflatex is here with booktabs, which is a package of its own on many systems."""
    if not (shutil.which("pdflatex") and shutil.which("kpsewhich")):
        return False
    return subprocess.run(["kpsewhich", "booktabs.sty"], capture_output=True, check=False).returncode == 0


def test_it_compiles(tmp_path):
    text = to_latex(published.compare(layout.build("minimum-norm", CELLS)), standalone=True)
    assert text.startswith("\\documentclass")
    assert text.rstrip().endswith("\\end{document}")
    if not has_latex():
        pytest.skip("no pdflatex with booktabs here; the structure was parsed instead")
    (tmp_path / "table.tex").write_text(text, encoding="utf-8")
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "table.tex"]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, timeout=120)
    assert (tmp_path / "table.pdf").exists()
