"""Run the notebooks of examples/notebooks and write what they show into them; no Jupyter is needed.

    python -m scripts.notebooks            runs all of them
    python -m scripts.notebooks --check    exit code 1 if one would show other text than it does

A cell's output is what it prints and the value of its last line: as a picture for matplotlib's axes, as HTML where it
has that, else as text. Times and the pixels of pictures are not compared.
"""

import ast
import base64
import contextlib
import io
import json
import linecache
import os
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

FOLDER = Path(__file__).parents[1] / "examples" / "notebooks"
Notebook = dict[str, Any]


def read(path: Path) -> Notebook:
    """Read a notebook."""
    held: Notebook = json.loads(path.read_text(encoding="utf-8"))
    return held


def run(notebook: Notebook) -> Notebook:
    """Run the cells in a new folder, and return the notebook with their outputs."""
    names: dict[str, Any] = {"__name__": "notebook"}
    made = json.loads(json.dumps(notebook))
    here = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            for number, cell in enumerate(made["cells"]):
                if cell["cell_type"] == "code":
                    cell["outputs"] = _outputs("".join(cell["source"]), names, f"<cell {number}>")
        finally:
            os.chdir(here)
    return _numbered(made)


def texts(notebook: Notebook) -> list[str]:
    """Return the outputs of the cells as text, without what differs between machines."""
    found = []
    for cell in notebook["cells"]:
        for output in cell.get("outputs", ()):
            data = output.get("data", {})
            shown = "".join(output.get("text", ())) or "".join(data.get("text/plain", ()))
            found.append("a picture" if "image/png" in data else re.sub(r"\d+\.\d+ s\b", "… s", shown))
    return found


def _outputs(source: str, names: dict[str, Any], where: str) -> list[dict[str, Any]]:
    tree, printed, value = ast.parse(source), io.StringIO(), None
    # As Jupyter does, so that the text of functions can be read.
    linecache.cache[where] = len(source), None, source.splitlines(keepends=True), where
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    with contextlib.redirect_stdout(printed):
        exec(compile(tree, where, "exec"), names)
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), where, "eval"), names)
    text = printed.getvalue()
    stream = [{"name": "stdout", "output_type": "stream", "text": text.splitlines(keepends=True)}] if text else []
    shown = [] if value is None else [{"output_type": "execute_result", "metadata": {}, "data": _data(value)}]
    return [*stream, *shown]


def _data(value: Any) -> dict[str, Any]:
    first = value
    while isinstance(first, list | tuple | np.ndarray) and len(first):
        first = first[0]
    if hasattr(first, "get_figure"):  # axes, or rows of them
        held = io.BytesIO()
        figure = first.get_figure()
        figure.set_dpi(70)
        figure.savefig(held, format="png", bbox_inches="tight", metadata={"Software": None})
        return {"image/png": base64.b64encode(held.getvalue()).decode(), "text/plain": ["a figure"]}
    html = {"text/html": value._repr_html_().splitlines(keepends=True)} if hasattr(value, "_repr_html_") else {}
    return {**html, "text/plain": repr(value).splitlines(keepends=True)}


def _numbered(notebook: Notebook) -> Notebook:
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    for number, cell in enumerate(code, 1):
        cell["execution_count"] = number
        for output in cell["outputs"]:
            if output["output_type"] == "execute_result":
                output["execution_count"] = number
    return notebook


def main() -> int:
    """Run all notebooks; return the exit code."""
    stale = []
    for path in sorted(FOLDER.glob("*.ipynb")):
        before = read(path)
        after = run(before)
        if texts(before) != texts(after):
            stale.append(path.name)
        if "--check" not in sys.argv:
            path.write_text(json.dumps(after, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
            sys.stdout.write(f"wrote {path.name}\n")
    if "--check" in sys.argv and stale:
        sys.stdout.write(f"stale: {', '.join(stale)}; run: python -m scripts.notebooks\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
