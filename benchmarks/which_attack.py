"""The table of docs/which-attack.md: every kind of attack at about the same number of queries on the bundled network.

python -m benchmarks.which_attack --limit 100 --queries 600
"""

import argparse

import torch

import sigmazero as sz
from sigmazero import data, models

# Steps that come to the queries asked for: a step with a gradient is two.
STEPS = {
    **{"sigma-swap": 1 / 2, "sigma-zero": 1 / 2, "fmn": 1 / 2, "pdpgd": 1 / 2, "ead": 1 / 27, "vfga": 1 / 22},
    **{"saliency": 1 / 2, "sparsefool": None, "bb-dataset": 1 / 2, "spgd-unprojected-min": 1 / 2, "pgd-l0-min": 1 / 2},
    **{"query-swap": 1, "sparse-rs-min": 1, "label-swap": 1, "genetic": 1 / 50},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--limit", type=int, default=100)
    parser.add_argument("--queries", type=int, default=600)
    parser.add_argument("--attacks", nargs="*", default=list(STEPS))
    asked = parser.parse_args()
    torch.set_num_threads(1)
    rows = data.load("mnist-5k-heldout", limit=asked.limit, seed=0)
    model = models.load("demo")
    print("| attack | needs | median l0 | mean l0 | fooled | queries |")
    print("| --- | --- | --- | --- | --- | --- |")
    for name in asked.attacks:
        share = STEPS[name]
        attack = sz.get(name) if share is None else sz.get(name, steps=max(1, round(asked.queries * share)))
        found = attack.run(model, rows.images, rows.labels).summary()
        mean = f"{found['mean_l0']:.1f}" if found["mean_l0"] < torch.inf else "∞"
        figures = f"{found['median_l0']:g} | {mean} | {found['asr']:.0%} | {found['queries']:.0f}"
        print(f"| {name} | {attack.needs} | {figures} |".replace("%", " %"), flush=True)


if __name__ == "__main__":
    main()
