"""Images in spaces: what a grid of 8 bits costs, whether its examples survive as PNG files, and patches and rows.

    python -m benchmarks.grids --models M1 --model-dir weights/ --data-dir data/ --limit 200 --queries 600

A difference is that of the mean numbers of changes, relative to the same attack without a grid, with a bootstrap
interval over images. `saved` counts the examples that are read from a PNG file as they were and still fool the network.
"""

import io
from functools import partial

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

import sigmazero as sz
from benchmarks.differences import paired_bootstrap
from benchmarks.networks import networks, options, say

SPACES = ("real values", "8 bits", "3x3 patches", "rows")
patches = partial(sz.Space.patches, size=3)


def through_png(image: Tensor) -> Tensor:
    """A picture of values k / 255 after it was saved and read."""
    bytes_ = (image * 255).round().to(torch.uint8).cpu().permute(1, 2, 0).numpy()
    file = io.BytesIO()
    Image.fromarray(bytes_.squeeze(-1) if bytes_.shape[-1] == 1 else bytes_).save(file, "PNG")
    again = np.array(Image.open(file)).reshape(bytes_.shape)
    return torch.from_numpy(again).permute(2, 0, 1).to(image) / 255


def saved(model: nn.Module, result: sz.Result, y: Tensor) -> int:
    """How many examples survive: the same picture to the bit, and still wrong."""
    files = torch.stack([through_png(image) for image in result.x_adv])
    with torch.no_grad():
        wrong = model(files).argmax(1) != y
    return int((result.success & wrong & (files == result.x_adv).flatten(1).all(1)).sum())


def main() -> None:
    parser = options(__doc__, limit=200)
    parser.add_argument("--queries", type=int, default=600)
    parser.add_argument(
        "--attacks", nargs="+", choices=["sigma-zero", "sigma-swap"], default=["sigma-zero", "sigma-swap"]
    )
    parser.add_argument("--spaces", nargs="+", choices=SPACES, default=SPACES)
    args = parser.parse_args()
    for code, model, x, y, ids in networks(args):
        shape = tuple(x.shape[1:])
        spaces = (None, sz.Space.image8(), *(make(shape, grid=1 / 255) for make in (patches, sz.Space.rows)))
        for name in args.attacks:
            how = {"steps": args.queries // 2} if name == "sigma-zero" else {"queries": args.queries}
            base, cap = torch.zeros(0), x[0].numel()
            for words, space in zip(SPACES, spaces, strict=True):
                if words not in args.spaces:
                    continue
                result = sz.get(name, **how).run(model, x, y, ids=ids, space=space)
                line = {
                    "model": code,
                    "images": len(x),
                    "queries": args.queries,
                    "attack": name,
                    "space": words,
                    "asr": result.asr(),
                    "mean": round(result.mean_l0, 3),
                    "median": result.median_l0,
                    "seconds": round(result.seconds, 1),
                }
                if space is None:
                    base = result.l0.cpu().clamp(max=cap)
                if words == "8 bits" and len(base):
                    mine, mean = result.l0.cpu().clamp(max=cap), float(base.mean())
                    low, high = paired_bootstrap(mine.numpy(), base.numpy())
                    line["difference"] = round(float(mine.mean()) / mean - 1, 4)
                    line["interval"] = [round(low / mean, 4), round(high / mean, 4)]
                if space is not None:
                    line |= {"successes": int(result.success.sum()), "saved": saved(model, result, y)}
                say(line, args.out)


if __name__ == "__main__":
    main()
