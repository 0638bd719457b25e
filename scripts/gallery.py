"""Make the pictures of README and docs from runs on bundled models and data: python -m scripts.gallery (a minute).

docs/report.png is a photograph of the demo's page and needs chromium; without it the file stays as it is.
"""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch

import sigmazero as sz
from sigmazero import data, models

DOCS = Path(__file__).parents[1] / "docs"
FOLDER = DOCS / "gallery"
WIDTH, HEIGHT = 1280, 1500  # of the photograph
ATTACKS = {"sigma-swap": 300, "sigma-zero": 150, "query-swap": 300, "fmn": 150}  # steps: about 300 queries each


def main() -> None:
    """Run the attacks and draw."""
    torch.set_num_threads(1)
    FOLDER.mkdir(exist_ok=True)
    network, rows = models.load("demo"), data.load("mnist-5k-heldout", limit=40, seed=0)
    results = {name: _run(name, steps, network, rows) for name, steps in ATTACKS.items()}
    best = results["sigma-swap"]
    _save("examples", best.plot_examples(count=6)[0][0])
    axis = None
    for name, result in results.items():
        axis = result.plot_curve(axis, label=name)
    _save("curves", axis)
    _save("heat", best.plot_changes())
    people = data.load("adult-sample", limit=40, seed=1)
    _save("table", _run("sigma-swap", 300, models.load("adult-mlp"), people).plot_changes(count=10))
    _demo()


def _demo() -> None:
    """Run the demo; keep its picture and photograph its page."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, "-m", "sigmazero", "demo", "--out", folder], check=True, capture_output=True)
        shutil.copy(Path(folder) / "demo.png", DOCS / "demo.png")
        sys.stdout.write("wrote docs/demo.png\n")
        chromium = shutil.which("chromium")
        if chromium is None:
            sys.stdout.write("left docs/report.png as it is: there is no chromium\n")
            return
        page = (Path(folder) / "report.html").as_uri()
        flags = [
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--hide-scrollbars",
            f"--user-data-dir={folder}/profile",
        ]
        shot = [f"--window-size={WIDTH},{HEIGHT}", f"--screenshot={DOCS / 'report.png'}"]
        subprocess.run([chromium, *flags, *shot, page], check=True, capture_output=True)
        sys.stdout.write("wrote docs/report.png\n")


def _run(name: str, steps: int, network: Any, rows: data.Rows) -> sz.Result:
    queries: Any = {"queries": steps} if name == "sigma-swap" else {"steps": steps}
    return sz.get(name, **queries).run(network, rows.images, rows.labels, space=rows.space)


def _save(name: str, axis: Any) -> None:
    figure = axis.get_figure()
    figure.savefig(FOLDER / f"{name}.png", dpi=70, bbox_inches="tight", metadata={"Software": None})
    sys.stdout.write(f"wrote docs/gallery/{name}.png\n")


if __name__ == "__main__":
    main()
