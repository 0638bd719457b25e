"""Models of other libraries, recognised and asked."""

import subprocess
import sys
import types
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from sklearn.ensemble import BaggingClassifier, GradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LinearRegression, LogisticRegression, RidgeClassifier
from sklearn.model_selection import FixedThresholdClassifier, GridSearchCV
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC
from torch import nn

import sigmazero as sz
from sigmazero.models import WrappedModel
from sigmazero.models.any import recognise, understood
from sigmazero.models.doctor import examine

W = np.random.default_rng(0).normal(size=(6, 3)).astype(np.float32)


def numpy_scores(x):
    return x.reshape(len(x), -1) @ W


@pytest.fixture(scope="module")
def digits():
    x, y = load_digits(return_X_y=True)
    return (
        x[:400] / 16,
        y[:400],
        torch.from_numpy(x[400:406] / 16).float().view(-1, 1, 8, 8),
        torch.from_numpy(y[400:406]),
    )


MAKERS = {
    "forest": lambda: RandomForestClassifier(8, random_state=0),
    "boosting": lambda: GradientBoostingClassifier(n_estimators=3, max_depth=2, random_state=0),
    "svc": lambda: SVC(),
    "mlp": lambda: MLPClassifier((16,), solver="lbfgs", max_iter=60, random_state=0),
    "pipeline": lambda: make_pipeline(StandardScaler(), RidgeClassifier()),
}
WORDS = {
    "forest": "RandomForestClassifier.predict_proba, logarithms of its probabilities",
    "boosting": "GradientBoostingClassifier.decision_function, its scores",
    "svc": "SVC.decision_function, its scores",
    "mlp": "MLPClassifier.predict_proba, logarithms of its probabilities",
    "pipeline": "Pipeline.decision_function, its scores",
}


@pytest.mark.parametrize("kind", MAKERS)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_estimators_are_asked_by_the_attacks_whose_needs_they_meet(kind, digits):
    x, y, images, labels = digits
    model = MAKERS[kind]().fit(x, y)
    wrapped = sz.wrap(model)
    assert wrapped(images).argmax(1).tolist() == model.predict(images.flatten(1).double().numpy()).tolist()
    assert f"{WORDS[kind]}, ability='scores', classes=10" in repr(wrapped)
    for name in sz.ATTACKS:
        attack = sz.get(name, steps=5)
        needs = attack.needs
        ask = partial(attack.run, model, images[:2], labels[:2], budget=3 if attack.kind == "budget" else None)
        if needs == "gradients":
            with pytest.raises((TypeError, ValueError)) as refused:
                ask()
            assert "\n" not in str(refused.value)
        else:
            result = ask()
            assert bool((result.forwards > 0).all())


def test_two_classes_with_any_names(digits):
    x, y, images, _ = digits
    names = np.where(y > 4, "large", "little")
    for model in (LogisticRegression().fit(x, names), RandomForestClassifier(5, random_state=0).fit(x, names)):
        wrapped: Any = sz.wrap(model)
        said = model.predict(images.flatten(1).double().numpy())
        assert wrapped.classes == ("large", "little")
        assert torch.equal(wrapped(images).argmax(1), wrapped.index(said))
    with pytest.raises(ValueError, match=r"named the class 'huge', which is not among 'large', 'little'"):
        wrapped.index(["huge"])
    only = sz.wrap(model, method="predict")
    assert only.ability == "labels"
    assert torch.equal(only(images), nn.functional.one_hot(wrapped.index(said)).double())
    assert torch.equal(sz.wrap(model.predict)(images), only(images))
    labels_of = sz.wrap(lambda a: model.predict(a.reshape(len(a), -1)), gives="labels", classes=["large", "little"])
    assert torch.equal(labels_of(images), only(images))


def test_the_highest_score_is_what_predict_names(digits):
    """Support vector machines count votes of pairs: 4 of 100 points of their highest scores were of other classes."""
    x, y, images, _ = digits
    model = make_pipeline(StandardScaler(), SVC(kernel="linear")).fit(x, y)
    points = (images.repeat(40, 1, 1, 1) + torch.rand(240, 1, 8, 8)).clamp(0, 1)
    rows = points.flatten(1).double().numpy()
    assert (model.decision_function(rows).argmax(1) != model.predict(rows)).any()
    assert sz.wrap(model)(points).argmax(1).tolist() == model.predict(rows).tolist()


class Careful(LogisticRegression):  # type: ignore[misc]
    """An estimator of a user's own, which names class 1 only where it is sure."""

    def predict(self, x):
        return self.classes_[(self.predict_proba(x)[:, 1] > 0.8).astype(int)]


@pytest.mark.parametrize(
    ("model", "classes"),
    [
        (BaggingClassifier(SVC(), n_estimators=3, random_state=0), 10),
        (make_pipeline(FixedThresholdClassifier(LogisticRegression(), threshold=0.9)), 2),
        (GridSearchCV(make_pipeline(StandardScaler(), Careful()), {"careful__C": [1.0]}, cv=2), 2),
        (SVC(decision_function_shape="ovo"), 10),
    ],
    ids=["votes of estimators", "a threshold", "a method of the user's", "pairs of classes"],
)
def test_a_success_is_one_for_a_predict_that_goes_its_own_way(model, classes, digits):
    x, y, images, _ = digits
    model.fit(x, y % classes)
    noisy = np.clip(np.repeat(images.flatten(1).double().numpy(), 60, 0), 0, 1)
    noisy = np.clip(noisy + np.random.default_rng(0).normal(size=noisy.shape) / 3, 0, 1)
    assert sz.wrap(model)(torch.from_numpy(noisy)).shape == (360, classes)
    assert (sz.wrap(model)(torch.from_numpy(noisy)).argmax(1).numpy() == model.predict(noisy)).all()
    named = model.predict(images.flatten(1).numpy())
    result = sz.get("query-swap", steps=40).run(model, images, torch.from_numpy(named))
    assert result.success.any()
    assert ((model.predict(result.x_adv.flatten(1).numpy()) != named) == result.success.numpy()).all()


def test_one_class_more_clearly_than_another():
    pairs = SVC(decision_function_shape="ovo").fit(np.eye(4), np.arange(4))
    scores = sz.wrap(pairs)(torch.eye(4, dtype=torch.float64))
    assert (scores.argmax(1) == torch.arange(4)).all()
    assert (scores.max(1).values > 2.5).all()  # it wins all its three pairs


def test_what_predicts_numbers_is_refused():
    with pytest.raises(ValueError, match="LinearRegression predicts numbers, not classes"):
        sz.wrap(LinearRegression().fit(np.eye(3), np.arange(3)))


def test_logarithms_keep_the_class_and_zero_is_a_number():
    near = np.nextafter(0.05, 1)
    answers = np.array([[0.05] * 19 + [near], [1.0] + [0.0] * 19])
    scores = sz.wrap(lambda x: answers[: len(x)], takes="numpy")(torch.zeros(2, 3))
    assert scores.argmax(1).tolist() == [19, 0]
    assert bool(scores.isfinite().all())


def test_answers_that_cannot_be_told_show_the_fix():
    x = torch.rand(2, 6)
    with pytest.raises(
        ValueError, match=r"one number per row; say what it is: sz\.wrap\(model, gives='probabilities'\)"
    ):
        sz.wrap(lambda a: np.zeros(len(a)))(x)
    assert sz.wrap(lambda a: np.full(len(a), 0.75), gives="probabilities")(x).exp()[0].tolist() == pytest.approx(
        [0.25, 0.75]
    )
    with pytest.raises(TypeError, match=r"<U1 values, not scores; .*gives='labels', classes"):
        sz.wrap(lambda a: np.array(["a"] * len(a)))(x)
    with pytest.raises(ValueError, match=r"say how many classes there are, sz\.wrap\(model, classes=10\)"):
        sz.wrap(numpy_scores, gives="labels")
    with pytest.raises(ValueError, match=r"shape \(1, 3\) for 2 rows"):
        sz.wrap(lambda a: np.zeros((1, 3)))(x)
    with pytest.raises(ValueError, match=r'takes="numpy"'):
        sz.wrap(lambda a: a)
    with pytest.raises(TypeError, match=r"sz\.wrap knows no int"):
        sz.wrap(3)
    with pytest.raises(ValueError, match="predicts numbers, not classes"):
        sz.wrap(type("TreeRegressor", (), {"predict": lambda self, x: x})())
    with pytest.raises(ValueError, match=r"gives='logits' is not allowed; allowed: scores"):
        sz.wrap(numpy_scores, gives="logits")
    with pytest.raises(ValueError, match="has no gradients"):
        sz.wrap(numpy_scores, ability="gradients")


def test_functions_are_told_by_what_their_code_uses():
    weight, net = torch.ones(6, 3), nn.Linear(6, 3)

    class Scorer:
        def __init__(self, inner):
            self.inner = inner

        def __call__(self, x):
            return self.inner(np.asarray(x) if isinstance(self.inner, np.ufunc) else x)

    def annotated(x: np.ndarray):
        return x

    assert recognise.takes(numpy_scores) == "numpy"
    assert recognise.takes(lambda x: x @ weight) == "torch"
    assert recognise.takes(lambda x: net(x)) == "torch"
    assert recognise.takes(Scorer(net)) == "torch"
    assert recognise.takes(Scorer(np.exp)) == "numpy"
    assert recognise.takes(annotated) == "numpy"
    assert recognise.takes(partial(numpy_scores)) == "numpy"
    assert understood(net) is net
    function = lambda x: net(x)  # noqa: E731
    assert understood(function) is function
    assert isinstance(understood(numpy_scores), WrappedModel)


def test_every_door_takes_any_model(tmp_path):
    x = torch.rand(4, 1, 2, 3, generator=torch.Generator().manual_seed(0))
    y = torch.from_numpy(numpy_scores(x.numpy()).argmax(1))
    attack = sz.get("sparse-rs", steps=20)
    result = attack.run(numpy_scores, x, y, budget=3)
    cascade = sz.SparseAutoAttack(numpy_scores, eps=3, version="custom", attacks_to_run=[attack], verbose=False)
    assert torch.equal(cascade.run_standard_evaluation(x, y), result.x_adv)
    assert examine(numpy_scores, x, y) == []
    evaluation = sz.evaluate(numpy_scores, (x, y), [attack], store=tmp_path / "s.db", budgets=[3])
    assert not evaluation.failed
    assert "numpy_scores" in evaluation.table()
    facts = evaluation.facts(evaluation.keys[0])
    assert facts.forwards.tolist() == result.forwards.tolist()
    assert not evaluation.verify().disagreements
    other = sz.evaluate(sz.wrap(lambda a: -numpy_scores(a)), (x, y), [attack], store=tmp_path / "s.db", budgets=[3])
    assert other.keys != evaluation.keys
    (tmp_path / "net.py").write_text("import numpy as np\ndef build():\n    return lambda x: np.zeros((len(x), 3))\n")
    assert sz.models.load(f"{tmp_path}/net.py:build")(x).shape == (4, 3)


def test_slopes_of_a_numpy_function(digits):
    def vjp(x, slope):
        return (slope @ W.T).reshape(x.shape)

    x = torch.rand(5, 6, generator=torch.Generator().manual_seed(0))
    own = sz.wrap(lambda a: a @ torch.from_numpy(W))
    made = sz.wrap(numpy_scores, vjp=vjp, max_batch=2)
    assert made.ability == "gradients"
    y = own(x).argmax(1)
    one, other = (sz.get("sigma-zero", steps=20).run(model, x, y) for model in (own, made))
    assert torch.equal(one.l0, other.l0)
    assert torch.allclose(one.x_adv, other.x_adv, atol=1e-5)
    assert torch.equal(one.backwards, other.backwards)


def test_wrapping_imports_no_library():
    code = (
        "import sys, numpy as np, sigmazero as sz; sz.wrap(lambda x: np.zeros((len(x), 2)));"
        "print([n for n in ('sklearn', 'xgboost', 'lightgbm', 'onnxruntime', 'jax', 'tensorflow', 'keras', 'pandas') "
        "if n in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


class ModelOutput(dict[str, Any]):
    """As Hugging Face has it: a dictionary whose entries are also attributes."""

    def __getattr__(self, name):
        return self[name]


@pytest.mark.parametrize(
    "twist",
    [
        lambda z: ModelOutput(loss=None, logits=z),
        lambda z: types.SimpleNamespace(logits=z),
        lambda z: {"logits": z, "hidden": z[:, :1]},
        lambda z: (z, "attentions"),
    ],
)
def test_outputs_that_hold_the_logits(twist, tmp_path):
    class Odd(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Linear(6, 3)

        def forward(self, x):
            return twist(self.inner(x))

    torch.manual_seed(0)
    model, x = Odd(), torch.rand(4, 6)
    y = model.inner(x).argmax(1)
    plain = sz.get("sigma-zero", steps=10).run(model.inner, x, y)
    assert torch.equal(sz.get("sigma-zero", steps=10).run(model, x, y).x_adv, plain.x_adv)
    assert examine(model, x, y) == []
    evaluation = sz.evaluate(model, (x, y), store=tmp_path / "s.db", steps=10)
    assert evaluation.facts(evaluation.keys[0]).l0.tolist() == plain.l0.tolist()
    found = evaluation.verify()
    assert (found.rows, found.disagreements) == (4, [])


def test_outputs_without_logits_show_the_fix():
    with pytest.raises(
        TypeError, match=r"a dict with the keys a, b in which no logits are found; .*sz\.wrap\(lambda x"
    ):
        sz.get("sigma-zero").run(lambda x: {"a": x, "b": x}, torch.rand(2, 6), torch.zeros(2).long())


def test_normalisation_of_processors_and_of_timm():
    net = nn.Sequential(nn.Flatten(), nn.Linear(12, 3))
    x = torch.rand(2, 3, 2, 2)
    mean, std = [0.1, 0.2, 0.3], [0.5, 0.25, 2.0]
    wanted = net((x - torch.tensor(mean).view(3, 1, 1)) / torch.tensor(std).view(3, 1, 1))
    told = {"do_normalize": True, "do_rescale": True, "rescale_factor": 1 / 255, "image_mean": mean, "image_std": std}
    assert torch.allclose(sz.wrap(net, processor=types.SimpleNamespace(**told))(x), wanted, atol=1e-5)
    bytes_of = types.SimpleNamespace(**told | {"rescale_factor": 1 / 127.5})
    assert torch.allclose(sz.wrap(net, processor=bytes_of)(x / 2), wanted, atol=1e-5)
    with pytest.raises(ValueError, match='names no image_mean and image_std; write normalize="MEAN,STD"'):
        sz.wrap(net, processor=types.SimpleNamespace())
    net.pretrained_cfg = {"mean": mean, "std": std}
    assert torch.allclose(sz.wrap(net)(x), wanted, atol=1e-5)
    assert "mean=[0.1" in repr(sz.wrap(net))
    assert sz.wrap(net, normalize=False) is net
    with pytest.raises(ValueError, match="is no network of torch"):
        sz.wrap(numpy_scores, normalize="mnist")


def test_a_network_of_torch_as_a_black_box():
    net, x = nn.Linear(6, 3), torch.rand(3, 6)
    box: Any = sz.wrap(net, ability="scores", max_queries=10)
    assert torch.equal(box(x), net(x))
    assert box.ability == "scores"
    assert box.queries.asked == 3
    assert sz.wrap(net, ability="labels", classes=3)(x).sum(1).tolist() == [1, 1, 1]
