"""Written by `python -m scripts.signatures` from the registry."""

from typing import Any, Literal, Unpack

from torch import Tensor

from sigmazero.core.attack import Attack, RunOptions
from sigmazero.core.inputs import Array

class FunctionOptions(RunOptions, total=False):
    num_steps: int
    max_iter: int
    epsilon_budget: int | None
    verbose: bool
    norm: Literal[0]
    targets: Array | None

class SigmaZeroOptions(FunctionOptions, total=False):
    lr: float
    η_0: float
    sigma: float
    σ: float
    τ_0: float
    t: float
    τ_factor: float

def sigma_zero(
    model: object,
    inputs: Array,
    labels: Array,
    steps: int = ...,
    step_size: float = ...,
    smoothing: float = ...,
    threshold: float = ...,
    *,
    step_size_end: float = ...,
    beta2: float = ...,
    loss: str = ...,
    threshold_rate: float = ...,
    normalize: bool = ...,
    grad_norm: float | Literal["inf"] = ...,
    adaptive_threshold: bool = ...,
    projection: bool = ...,
    l0_term: bool = ...,
    optimizer: Literal["adam", "sgd"] = ...,
    order: Literal["released", "paper"] = ...,
    **options: Unpack[SigmaZeroOptions],
) -> Tensor: ...
def sigma_swap(
    model: object,
    inputs: Array,
    labels: Array,
    steps: int = ...,
    *,
    proposals: int = ...,
    radius: int = ...,
    sharpness: int = ...,
    choices: float = ...,
    trust: float = ...,
    heat: float = ...,
    momentum: float = ...,
    jitter: float = ...,
    queries: int | None = ...,
    share: float = ...,
    warm_up: int = ...,
    first: Attack = ...,
    warm_up_hard: int = ...,
    first_hard: Attack = ...,
    **options: Unpack[FunctionOptions],
) -> Tensor: ...
def swap_search(
    model: object,
    inputs: Array,
    labels: Array,
    steps: int = ...,
    *,
    proposals: int = ...,
    radius: int = ...,
    sharpness: int = ...,
    choices: float = ...,
    trust: float = ...,
    heat: float = ...,
    momentum: float = ...,
    jitter: float = ...,
    queries: int | None = ...,
    **options: Unpack[FunctionOptions],
) -> Tensor: ...
def query_swap(
    model: object,
    inputs: Array,
    labels: Array,
    steps: int = ...,
    *,
    proposals: int = ...,
    radius: int = ...,
    sharpness: int = ...,
    choices: float = ...,
    trust: float = ...,
    heat: float = ...,
    momentum: float = ...,
    jitter: float = ...,
    queries: int | None = ...,
    share: float = ...,
    openings: int = ...,
    surrogate: object | None = ...,
    **options: Unpack[FunctionOptions],
) -> Tensor: ...
def label_swap(
    model: object,
    inputs: Array,
    labels: Array,
    steps: int = ...,
    *,
    radius: int = ...,
    **options: Unpack[FunctionOptions],
) -> Tensor: ...
def corner(
    model: object,
    inputs: Array,
    labels: Array,
    steps: int = ...,
    *,
    width: int = ...,
    pairs: int = ...,
    beam: int = ...,
    **options: Unpack[FunctionOptions],
) -> Tensor: ...
def saliency(
    model: object,
    inputs: Array,
    labels: Array,
    steps: int = ...,
    *,
    loss: str = ...,
    **options: Unpack[FunctionOptions],
) -> Tensor: ...
def genetic(
    model: object,
    inputs: Array,
    labels: Array,
    steps: int = ...,
    *,
    population: int = ...,
    parents: int = ...,
    mutations: float = ...,
    penalty: float = ...,
    **options: Unpack[FunctionOptions],
) -> Tensor: ...

class FMNOptions(FunctionOptions, total=False):
    α_init: float
    γ_init: float

def fmn(
    model: object,
    inputs: Array,
    labels: Array,
    steps: int = ...,
    *,
    step_size: float = ...,
    step_size_end: float = ...,
    budget_rate: float = ...,
    budget_rate_end: float = ...,
    loss: str = ...,
    **options: Unpack[FMNOptions],
) -> Tensor: ...

class PDPGDOptions(FunctionOptions, total=False):
    random_init: float
    primal_lr: float
    primal_lr_decrease: float
    dual_ratio_init: float
    dual_min_ratio: float
    dual_lr: float
    dual_lr_decrease: float
    dual_ema: float
    ε_threshold: float

def pdpgd(
    model: object,
    inputs: Array,
    labels: Array,
    steps: int = ...,
    *,
    proximal: Literal["l2/3", "l0", "l0-pixel"] = ...,
    random_start: float = ...,
    step_size: float = ...,
    step_size_end: float = ...,
    dual_ratio: float = ...,
    dual_ratio_min: float = ...,
    dual_step_size: float = ...,
    dual_step_size_end: float = ...,
    dual_momentum: float = ...,
    proximal_steps: int = ...,
    proximal_tolerance: float = ...,
    **options: Unpack[PDPGDOptions],
) -> Tensor: ...
def ead(
    model: object,
    inputs: Array,
    labels: Array,
    steps: int = ...,
    *,
    rule: Literal["l1", "elastic-net"] = ...,
    binary_search_steps: int = ...,
    initial_const: float = ...,
    regularization: float = ...,
    step_size: float = ...,
    confidence: float = ...,
    abort_early: bool = ...,
    **options: Unpack[FunctionOptions],
) -> Tensor: ...
def pgd_l0(
    model: object,
    inputs: Array,
    labels: Array,
    steps: int = ...,
    *,
    restarts: int = ...,
    step_size: float = ...,
    loss: str = ...,
    group: Literal["unit", "pixel"] = ...,
    **options: Unpack[FunctionOptions],
) -> Tensor: ...
def sparsefool(
    model: object,
    inputs: Array,
    labels: Array,
    steps: int = ...,
    *,
    pull: float = ...,
    overshoot: float = ...,
    inner_steps: int = ...,
    classes: int | None = ...,
    variant: Literal["published", "torchattacks"] = ...,
    **options: Unpack[FunctionOptions],
) -> Tensor: ...

class VFGAOptions(FunctionOptions, total=False):
    n_samples: int

def vfga(
    model: object,
    inputs: Array,
    labels: Array,
    steps: int = ...,
    *,
    samples: int = ...,
    **options: Unpack[VFGAOptions],
) -> Tensor: ...
def bb(
    model: object,
    inputs: Array,
    labels: Array,
    steps: int = ...,
    *,
    overshoot: float = ...,
    radius: float = ...,
    radius_batch: int = ...,
    radius_decay: float = ...,
    radius_decays: int = ...,
    momentum: float = ...,
    halvings: int = ...,
    tolerance: float = ...,
    start_from: Literal["noise", "pool"] = ...,
    directions: int = ...,
    blends: int = ...,
    **options: Unpack[FunctionOptions],
) -> Tensor: ...
def sparse_rs(
    model: object,
    inputs: Array,
    labels: Array,
    steps: int = ...,
    *,
    initial_share: float = ...,
    loss: str = ...,
    **options: Unpack[FunctionOptions],
) -> Tensor: ...
def spgd(
    model: object,
    inputs: Array,
    labels: Array,
    steps: int = ...,
    *,
    gradient: Literal["projected", "unprojected"] = ...,
    step_size: float = ...,
    mask_step_size: float = ...,
    patience: int = ...,
    patience_counts: Literal["consecutive", "total"] = ...,
    loss: str = ...,
    **options: Unpack[FunctionOptions],
) -> Tensor: ...
def refine(model: object, x: Array, y: Array, x_adv: Array, queries: int = ..., **options: Any) -> Tensor: ...
