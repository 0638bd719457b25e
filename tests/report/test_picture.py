import pytest
import torch

import sigmazero as sz
from sigmazero.report.figures.images import is_image, largest_change
from sigmazero.report.figures.picture import choose, draw, save_picture


def _run(shape, samples, steps=20, mask=None):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(torch.Size(shape).numel(), 3))
    x = torch.rand(samples, *shape)
    y = model(x).argmax(1)
    return sz.get("sigma-zero", steps=steps).run(model, x, y, mask=mask), x, y


@pytest.mark.parametrize(("shape", "samples"), [((1, 6, 6), 1), ((3, 6, 5), 3), ((1, 6, 6), 20)])
def test_pictures_of_grey_and_colour_images(tmp_path, shape, samples):
    result, x, y = _run(shape, samples)
    figure = draw(result, x, y, title="a title")
    assert len(figure.axes) == 3 * min(samples, 8) + 1
    path = tmp_path / "folder" / "picture.png"
    save_picture(path, result, x, y)
    assert path.read_bytes().startswith(b"\x89PNG")
    assert [other.name for other in path.parent.iterdir()] == ["picture.png"]


def test_inputs_that_are_no_images_give_the_curve_alone():
    result, x, y = _run((7,), 4)
    assert not is_image(x)
    assert len(draw(result, x, y).axes) == 1


def test_nothing_found_can_be_drawn():
    result, x, y = _run((1, 6, 6), 2, mask=torch.zeros(1, 6, 6, dtype=torch.bool))
    assert not result.success.any()
    assert any("not found" in axis.get_title() for axis in draw(result, x, y).axes)


def test_rows_are_spread_from_easy_to_hard():
    result, _, _ = _run((1, 6, 6), 20)
    rows = choose(result, 5)
    changes = result.changes[rows].tolist()
    assert changes == sorted(changes)
    assert changes[0] == result.changes[result.changes > 0].min()
    assert changes[-1] == result.changes.max()


def test_the_largest_change_of_a_position_keeps_its_sign():
    clean, adversarial = torch.zeros(3, 1, 2), torch.tensor([[[0.1, 0.0]], [[-0.7, 0.0]], [[0.2, 0.3]]])
    assert largest_change(clean, adversarial)[0].tolist() == pytest.approx([-0.7, 0.3])
