"""Estimators and functions as models: what they are taken for, and that a success is one for their own `predict`."""

import subprocess
import sys
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
from sigmazero.models import ArrayModel

W = np.random.default_rng(0).normal(size=(6, 3)).astype(np.float32)


def numpy_scores(x: np.ndarray) -> np.ndarray:
    return x.reshape(len(x), -1) @ W


@pytest.fixture(scope="module")
def digits():
    x, y = load_digits(return_X_y=True)
    images = torch.from_numpy(x[400:406] / 16).float().view(-1, 1, 8, 8)
    return x[:400] / 16, y[:400], images, torch.from_numpy(y[400:406])


ESTIMATORS = {
    "RandomForestClassifier.predict_proba": RandomForestClassifier(8, random_state=0),
    "GradientBoostingClassifier.decision_function": GradientBoostingClassifier(n_estimators=3, max_depth=2),
    "SVC.decision_function": SVC(),
    "MLPClassifier.predict_proba": MLPClassifier((16,), solver="lbfgs", max_iter=60, random_state=0),
    "Pipeline.decision_function": make_pipeline(StandardScaler(), RidgeClassifier()),
}


@pytest.mark.parametrize("title", ESTIMATORS)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_estimators_answer_as_they_predict(title, digits):
    x, y, images, labels = digits
    model = ESTIMATORS[title].fit(x, y)
    wrapped = sz.wrap(model)
    assert isinstance(wrapped, ArrayModel)
    assert (wrapped.title, wrapped.ability, wrapped.classes) == (title, "scores", tuple(range(10)))
    assert wrapped(images).argmax(1).tolist() == model.predict(images.flatten(1).double().numpy()).tolist()
    result = sz.get("sparse-rs", steps=5).run(model, images[:2], labels[:2], budget=3)
    assert bool((result.forwards > 0).all())
    with pytest.raises((TypeError, ValueError), match="gradients"):
        sz.get("sigma-zero", steps=5).run(model, images[:2], labels[:2])


def test_two_classes_with_any_names(digits):
    x, y, images, _ = digits
    names = np.where(y > 4, "large", "little")
    for model in (LogisticRegression().fit(x, names), RandomForestClassifier(5, random_state=0).fit(x, names)):
        wrapped: Any = sz.wrap(model)
        named = model.predict(images.flatten(1).double().numpy())
        assert wrapped.classes == ("large", "little")
        columns = torch.tensor([wrapped.classes.index(name) for name in named])
        assert torch.equal(wrapped(images).argmax(1), columns)
    with pytest.raises(ValueError, match=r"'huge'.*'large', 'little'"):
        sz.wrap(lambda a: ["huge"] * len(a), kind="numpy", gives="labels", classes=["large", "little"])(images)
    only = sz.wrap(model, method="predict")
    assert only.ability == "labels"
    assert torch.equal(only(images), nn.functional.one_hot(columns).double())
    assert torch.equal(sz.wrap(model.predict)(images), only(images))


class Careful(LogisticRegression):  # type: ignore[misc]
    """An estimator of a user's own, which names class 1 only where it is sure."""

    def predict(self, x):
        return self.classes_[(self.predict_proba(x)[:, 1] > 0.8).astype(int)]


class Hasty(RandomForestClassifier):  # type: ignore[misc]
    """One that looks like scikit-learn's and names another class than its highest probability."""

    __module__ = "sklearn.ensemble"

    def predict(self, x):
        return self.classes_[self.predict_proba(x).argsort(1)[:, -2]]


@pytest.mark.parametrize(
    ("model", "classes"),
    [
        (make_pipeline(StandardScaler(), SVC(kernel="linear")), 10),
        (BaggingClassifier(SVC(), n_estimators=3, random_state=0), 10),
        (make_pipeline(FixedThresholdClassifier(LogisticRegression(), threshold=0.9)), 2),
        (GridSearchCV(make_pipeline(StandardScaler(), Careful()), {"careful__C": [1.0]}, cv=2), 2),
        (Hasty(8, random_state=0), 10),
    ],
    ids=["votes of pairs", "votes of estimators", "a threshold", "a method of the user's", "seen on the first batch"],
)
def test_a_success_is_one_for_a_predict_that_goes_its_own_way(model, classes, digits):
    x, y, images, _ = digits
    model.fit(x, y % classes)
    noisy = np.repeat(images.flatten(1).double().numpy(), 60, 0)
    noisy = np.clip(noisy + np.random.default_rng(0).normal(size=noisy.shape) / 3, 0, 1)
    assert (sz.wrap(model)(torch.from_numpy(noisy)).argmax(1).numpy() == model.predict(noisy)).all()
    named = model.predict(images.flatten(1).numpy())
    result = sz.get("query-swap", steps=40).run(model, images, torch.from_numpy(named))
    assert result.success.any()
    assert ((model.predict(result.x_adv.flatten(1).numpy()) != named) == result.success.numpy()).all()


def test_predict_is_asked_once_for_each_model_and_process(digits):
    x, y, images, _ = digits
    model = RandomForestClassifier(3, random_state=0).fit(x, y)
    asked = []
    model.predict = lambda rows, own=model.predict: asked.append(len(rows)) or own(rows)
    for _ in range(2):
        wrapped = sz.wrap(model)
        for _ in range(2):
            wrapped(images)
    assert asked == [6]
    assert wrapped.asked == 12


def test_answers_that_cannot_be_told_show_the_fix():
    x = torch.rand(2, 6)
    with pytest.raises(ValueError, match=r"from 0\.25 to 0\.75; .*gives='probabilities'"):
        sz.wrap(lambda a: np.linspace(0.25, 0.75, len(a)), kind="numpy")(x)
    assert sz.wrap(lambda a: np.full(len(a), 0.75), kind="numpy", gives="probabilities")(x).exp()[0].tolist() == [
        pytest.approx(0.25),
        pytest.approx(0.75),
    ]
    with pytest.raises(TypeError, match=r"<U1.*gives='labels', classes"):
        sz.wrap(lambda a: np.array(["a"] * len(a)), kind="numpy")(x)
    with pytest.raises(ValueError, match=r"sz\.wrap\(model, classes=10\)"):
        sz.wrap(numpy_scores, gives="labels")
    with pytest.raises(ValueError, match=r"\(1, 3\) for 2 rows"):
        sz.wrap(lambda a: np.zeros((1, 3)), kind="numpy")(x)
    with pytest.raises(TypeError, match="kind='numpy'"):
        sz.get("sparse-rs").run(lambda a: np.zeros((len(a), 3)), x, torch.zeros(2).long(), budget=2)
    for wrong in (3, type("TreeRegressor", (), {"predict": lambda self, x: x})(), LinearRegression()):
        with pytest.raises((TypeError, ValueError), match=r"int|numbers, not classes"):
            sz.wrap(wrong)
    with pytest.raises(ValueError, match=r"gives='logits'.*scores"):
        sz.wrap(numpy_scores, gives="logits")
    with pytest.raises(ValueError, match="method="):
        sz.wrap(nn.Linear(2, 2), method="predict")


def test_logarithms_keep_the_class_and_zero_is_a_number():
    answers = np.array([[0.05] * 19 + [np.nextafter(0.05, 1)], [1.0] + [0.0] * 19])
    scores = sz.wrap(lambda x: answers[: len(x)], kind="numpy")(torch.zeros(2, 3))
    assert scores.argmax(1).tolist() == [19, 0]
    assert bool(scores.isfinite().all())


def test_gradients_of_a_numpy_function():
    x = torch.rand(5, 6, generator=torch.Generator().manual_seed(0))
    own = sz.wrap(lambda a: a @ torch.from_numpy(W))
    made = sz.limit(sz.wrap(numpy_scores, vjp=lambda x, slope: (slope @ W.T).reshape(x.shape)), max_batch=2)
    assert made.ability == "gradients"
    one, other = (sz.get("sigma-zero", steps=20).run(model, x, own(x).argmax(1)) for model in (own, made))
    assert torch.equal(one.l0, other.l0)
    assert torch.allclose(one.x_adv, other.x_adv, atol=1e-5)
    assert torch.equal(one.backwards, other.backwards)


def test_wrapping_imports_no_library():
    code = (
        "import sys, numpy as np, sigmazero as sz; sz.wrap(lambda x: np.zeros((len(x), 2)), kind='numpy');"
        "print([n for n in ('sklearn', 'xgboost', 'lightgbm', 'onnx', 'onnxruntime', 'jax', 'keras', 'pandas') "
        "if n in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


STABLE = """
import numpy as np, sigmazero as sz
from sklearn.ensemble import RandomForestClassifier, GradientBoostingClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC
x = np.random.default_rng(0).random((80, 4)); y = (x.sum(1) > 2).astype(int); w = np.eye(4)
for kind in (RandomForestClassifier, GradientBoostingClassifier, SVC, None):
    made = (lambda rows: rows @ w) if kind is None else make_pipeline(StandardScaler(), kind(random_state=0)).fit(x, y)
    print(sz.wrap(made, kind="numpy" if kind is None else None).get_extra_state())
"""


def test_a_model_is_known_in_every_process(tmp_path):
    (tmp_path / "known.py").write_text(STABLE)
    runs = [
        subprocess.run([sys.executable, tmp_path / "known.py"], capture_output=True, text=True, check=True)
        for _ in range(2)
    ]
    lines = runs[0].stdout.splitlines()
    assert lines == runs[1].stdout.splitlines()
    assert len(set(lines)) == 4
    assert not any("process" in line for line in lines)
