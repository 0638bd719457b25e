"""Run σ-zero and σ-swap in AttackBench, beside the library's own σ-zero: a line per attack in a CSV file.

    python -m experiments.attackbench M1 mnist --samples 100 --out docs/evidence/attackbench.csv

The library draws the rows, counts the queries and limits them to its 2,000 per sample. In batches of one it counts
exactly; in larger ones it takes the nearest input for the sample that a query is about. Its optimality compares with a
pool that it downloads; here the pool is the attacks of this run. It needs attackbenchlib[attacks].
"""

from __future__ import annotations

import argparse
import importlib
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, TensorDataset

import sigmazero as sz
from experiments import evidence
from sigmazero.adapters import attackbench as bridge


def rows(samples: int, most: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return the rows that the library's `get_loader` draws out of 10,000; of those the first below `most`."""
    drawn = np.random.default_rng(0).choice(10_000, replace=False, size=samples if most == 10_000 else 1000)
    return np.asarray(drawn[drawn < most][:samples])


def measure(network: str, dataset: str, samples: int, most: int = 10_000) -> list[dict[str, str]]:
    """Return a line per attack."""
    attackbench: Any = importlib.import_module("attackbench")
    theirs: Any = importlib.import_module("attackbench.attacks.original.sigma_zero")
    model = sz.models.load(network).eval()
    data = sz.data.load(dataset, rows=rows(samples, most).tolist())
    loader = DataLoader(TensorDataset(data.images, data.labels), batch_size=1)
    attacks = {
        # Version 2.0.2 hands its own `get_attack("original", "sigma_zero", "l0")` an argument that it does not take.
        "σ-zero of AttackBench": lambda model, inputs, labels: theirs.sigma_zero(model, inputs, labels),
        "σ-zero": bridge.sigma_zero,
        "σ-swap": bridge.sigma_swap,
    }
    found = {
        name: attackbench.run_attack(model, loader, attack, "l0", device=torch.device("cpu"), debug=True)
        for name, attack in attacks.items()
    }
    lines = []
    for name, one in found.items():
        best, own = (np.asarray(one[kind]["l0"]) for kind in ("distances", "final_distances"))
        own = np.where(one["adv_success"], own, np.inf)
        score = attackbench.compute_local_optimality(one, reference_results=list(found.values()))
        queries = np.add(one["num_forwards"], one["num_backwards"])
        lines.append(
            {
                "network": network,
                "rows": str(len(data)),
                "limit": str(attackbench.DEFAULT_QUERY_BUDGET),
                "attack": name,
                "asr": f"{np.isfinite(best).mean():.4f}",
                "median_l0": f"{np.median(best):g}",
                "mean_l0": f"{best.mean():.2f}",
                "optimality": f"{score['optimality']:.4f}",
                "returned_asr": f"{np.mean(one['adv_success']):.4f}",
                "returned_median_l0": f"{np.median(own):g}",
                "forwards": f"{np.mean(one['num_forwards']):.1f}",
                "backwards": f"{np.mean(one['num_backwards']):.1f}",
                "most_queries": str(queries.max()),
                "seconds": f"{sum(one['times']) / len(data):.3f}",
                "library": attackbench.__version__,
                "torch": torch.__version__,
            }
        )
    return lines


def main() -> None:
    """Add the lines of a network to a CSV file, in the places of those it had."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("network")
    parser.add_argument("dataset")
    parser.add_argument("--samples", type=int, default=100)
    parser.add_argument("--most", type=int, default=10_000, help="rows of the data set that are there")
    parser.add_argument("--out", type=Path, required=True)
    asked = parser.parse_args()
    evidence.add(asked.out, measure(asked.network, asked.dataset, asked.samples, asked.most), ["network"])


if __name__ == "__main__":
    main()
