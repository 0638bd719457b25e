"""Code as users write it, with every public name: mypy --strict accepts it (test_typing.py)."""

from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

import sigmazero as sz


def functions(model: nn.Module, x: Tensor, y: Tensor) -> list[Tensor]:
    return [
        sz.sigma_zero(model, inputs=x, labels=y, num_steps=10, η_0=1.0, σ=1e-3, τ_0=0.3, τ_factor=0.01, targeted=False),
        sz.sigma_zero(
            model, x, y, steps=10, lr=1.0, sigma=1e-3, threshold=0.3, verbose=False, grad_norm=torch.inf, t=0.01
        ),
        sz.sigma_zero(
            model, x.numpy(), y.tolist(), 10, 1.0, 1e-3, 0.3, unit="pixel", hardware=sz.Hardware(precision="fp32")
        ),
        sz.sigma_swap(model, x, y, queries=50),
        sz.swap_search(model, x, y, start=x, proposals=3),
        sz.query_swap(model, x, y, steps=50),
        sz.label_swap(model, x, y, steps=50, radius=1),
        sz.corner(model, x, y, width=8),
        sz.saliency(model, x, y, loss="margin"),
        sz.genetic(model, x, y, population=10),
        sz.fmn(model, inputs=x, labels=y, norm=0, steps=10, α_init=1.0),
        sz.pdpgd(model, x, y, proximal="l0"),
        sz.ead(model, x, y, rule="l1"),
        sz.pgd_l0(model, x, y, budget=5),
        sz.sparsefool(model, x, y, steps=2),
        sz.vfga(model, x, y, max_iter=10, n_samples=3),
        sz.bb(model, x, y, start_from="pool", pool=x),
        sz.sparse_rs(model, x, y, budget=5),
        sz.spgd(model, x, y, budget=5, gradient="projected"),
        sz.refine(model, x, y, x, queries=50),
    ]


def classes() -> list[sz.Attack]:
    return [
        sz.SigmaZero(steps=10, grad_norm=2),
        sz.SigmaSwap(first=sz.SigmaZero()),
        sz.SwapSearch(),
        sz.QuerySwap(),
        sz.LabelSwap(),
        sz.Corner(),
        sz.Saliency(),
        sz.Genetic(),
        sz.FMN(),
        sz.PDPGD(),
        sz.EAD(),
        sz.PGDL0(),
        sz.SparseFool(),
        sz.VFGA(),
        sz.BrendelBethge(),
        sz.SparseRS(),
        sz.SparsePGD(),
        sz.MinimumNorm(name="mine", attack=sz.PGDL0()),
        sz.get("sigma-zero", steps=10),
        sz.ATTACKS["fmn"],
        sz.foreign(lambda model, inputs, labels: inputs, name="nothing"),
    ]


def run(attack: sz.Attack, model: nn.Module, x: Tensor, y: Tensor, folder: Path) -> float:
    result: sz.Result = attack(model, x, y, budget=5, seed=1, batch_size=2, progress=False)
    rows = np.asarray(x)
    result = attack.run(model, rows, [0, 1], bounds=(0, 1), mask=np.ones(rows.shape[1:], dtype=bool))
    print(result, result.asr(5), result.median_l0, result.success.sum(), result.outcome == sz.Outcome.FOUND)
    result.save(folder / "result.npz")
    print(sz.load_result(folder / "result.npz").summary()["asr"], sz.Result.load(folder / "result.npz").to_pandas())
    print(sz.check(model, x, y, result.x_adv).l0, sz.losses.LOSSES, sz.wrap(model, channels="first"))
    print(sz.limit(model, max_queries=100).queries.asked)
    sz.register(sz.SigmaZero(name="my own"))
    evaluation: sz.Evaluation = sz.evaluate(
        model, (x, y), ["sigma-zero", attack], mask=np.ones(3, dtype=bool), steps=10
    )
    print(evaluation, evaluation["sigma-zero"].l0, [*evaluation], sz.Evaluation.load(evaluation.save(folder / "e.db")))
    verdict = sz.gate(model, (x, y), 3, at_least=0.5)
    adversary = sz.SparseAutoAttack(model, norm="L0", eps=3)
    adversary.run_standard_evaluation(x, y, bs=2)
    print(verdict, sz.models.load, sz.data.load)
    return adversary.result.robust_accuracy()


def experimental(model: nn.Module, x: Tensor, y: Tensor) -> None:
    space = sz.Space(
        names=["a", "b"], rules=[sz.Rule({"a": 1, "b": 1}, "<=", 1)], derived={"b": sz.Formula({"a": 1.0})}
    )
    proved: sz.Certificates = sz.certify(model, x, y, up_to=2)
    print(proved, sz.smooth(model, x, y, keep=5), space)
