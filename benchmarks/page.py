"""How smooth a large page is: 10,000 samples of six attacks in a real browser.

    python -m benchmarks.page --out page.jsonl

Facts are made up, images are the bundled digits again and again. A step is timed in the page, from the event until the
browser has drawn two frames: scrolling the list by half its height, typing a letter into its search, changing its
order, opening the next sample. Needs Debian's chromium and chromium-driver.
"""

import argparse
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from tests.browser.conftest import start
from torch import Tensor

from benchmarks.networks import say
from sigmazero import data
from sigmazero.core.metrics import Outcome
from sigmazero.report.pages.page import make_page
from sigmazero.report.pages.render import save_page
from sigmazero.store.facts import KINDS, CellInfo, Facts
from sigmazero.store.store import Store

ATTACKS = ("sigma-zero", "sigma-swap", "fmn", "vfga", "ead", "sparse-rs-min")
SHAPE = (1, 28, 28)
STEP = """
const [act, done] = [arguments[0], arguments[arguments.length - 1]];
const box = document.querySelector(".rows");
const search = document.querySelector(".picker input");
const order = document.querySelector(".picker select");
const acts = {
  scroll: (k) => { box.scrollTop = (k % 2 ? 0.9 * box.scrollHeight : 0) + 170 * k; },
  filter: (k) => { search.value = "class 7, l0 1".slice(0, 1 + (k % 13)); search.dispatchEvent(new Event("input")); },
  order: (k) => { order.value = ["row", "easy", "hard"][k % 3]; order.dispatchEvent(new Event("change")); },
  next: () => box.dispatchEvent(new KeyboardEvent("keydown", { key: "ArrowDown" })),
};
const frame = () => new Promise((next) => requestAnimationFrame(next));
(async () => {
  search.value = "";
  search.dispatchEvent(new Event("input"));
  const times = [];
  for (let k = 0; k < arguments[1]; k += 1) {
    await frame();
    const began = performance.now();
    acts[act](k);
    await frame();
    await frame();
    times.push(performance.now() - began);
  }
  done([times, document.querySelectorAll(".rows .row").length]);
})();
"""


@dataclass(frozen=True)
class Digits:
    """Clean rows, as a report asks for them."""

    images: Tensor
    ids: Tensor


def digits(rows: int) -> tuple[Digits, Tensor]:
    """So many images and their classes."""
    import torch

    held = data.load("mnist-5k-heldout")
    again = torch.arange(rows) % len(held)
    return Digits(held.images[again], torch.arange(rows)), held.labels[again]


def cell(attack: str, labels: Any, seed: int) -> tuple[CellInfo, Facts]:
    """A run with made-up facts: about as many changes as attacks make."""
    rng, n = np.random.default_rng(seed), len(labels)
    l0 = rng.geometric(1 / (8 + 4 * seed), n)
    offsets = np.concatenate([[0], np.cumsum(l0)]).astype(np.int64)
    index = np.concatenate([np.sort(rng.choice(784, min(k, 784), replace=False)) for k in np.minimum(l0, 784)])
    columns: dict[str, Any] = {name: np.zeros(n, kind) for name, kind in KINDS.items()}
    columns |= {"row": np.arange(n), "label": labels, "clean_prediction": labels, "prediction": (labels + 1) % 10}
    columns |= {"target": np.full(n, -1), "outcome": np.full(n, Outcome.FOUND, np.int8), "cost": np.full(n, np.nan)}
    columns |= {"l0": l0.astype(float), "l0_pixel": l0.astype(float), "forwards": np.full(n, 300)}
    facts = Facts(**columns, offsets=offsets, index=index, value=rng.random(len(index), np.float32))
    asked: dict[str, Any] = {"key": attack, "model": "made up", "dataset": "digits", "attack": attack, "rows": n}
    asked |= {"parameters": {"steps": 300}, "version": 1, "steps": 300, "unit": "feature", "goal": "untargeted"}
    asked |= {"budget": None, "seed": 0, "precision": "fp32", "model_sha256": "0" * 64, "data_hash": "1" * 64}
    info = CellInfo(**asked, about={"shape": list(SHAPE)})
    return info, replace(facts, returned=np.full(n, np.nan))


def write(folder: Path, rows: int) -> dict[str, float]:
    """The page with all samples; how long that took, and how large it is."""
    inputs, labels = digits(rows)
    cells = [cell(attack, labels.numpy(), seed) for seed, attack in enumerate(ATTACKS)]
    with Store(folder / "large.db", write=True) as store:
        store.register([info for info, _ in cells])
        run = store.begin({"torch": "made up"})
        for info, facts in cells:
            store.append(info.key, 0, facts, run=run)
    with Store(folder / "large.db") as store:
        began = time.perf_counter()
        save_page(folder / "large.html", make_page(store, lambda _: inputs, limit=rows))
        seconds = time.perf_counter() - began
    return {"made in s": round(seconds, 1), "MB": round((folder / "large.html").stat().st_size / 1e6, 1)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--steps", type=int, default=40, help="of each kind")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        say({"rows": args.rows, "attacks": len(ATTACKS), **write(folder, args.rows)}, args.out)
        driver = start(folder / "profile")
        try:
            driver.set_script_timeout(600)
            began = time.perf_counter()
            driver.get((folder / "large.html").as_uri())
            say({"opened in s": round(time.perf_counter() - began, 1)}, args.out)
            for act in ("scroll", "filter", "order", "next"):
                times, nodes = driver.execute_async_script(STEP, act, args.steps)
                told = {"median ms": round(float(np.median(times)), 1), "most ms": round(max(times), 1)}
                say({"step": act, "steps": args.steps, **told, "rows in the page": nodes}, args.out)
        finally:
            driver.quit()


if __name__ == "__main__":
    main()
