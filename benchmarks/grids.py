"""Images in spaces: what a grid of 8 bits costs, whether its examples survive as PNG files, and patches and rows.

    python -m benchmarks.grids --models M1 --model-dir weights/ --data-dir data/ --limit 200 --queries 600

A difference is that of the mean numbers of changes, relative to the same attack without a grid, with a bootstrap
interval over images. `saved` counts the examples that are read from a PNG file as they were and still fool the network.
"""

import io

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

import sigmazero as sz
from benchmarks.networks import networks, options, say
from sigmazero.report.intervals import paired_bootstrap


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
    args = parser.parse_args()
    for code, model, x, y, ids in networks(args):
        shape = tuple(x.shape[1:])
        spaces = {
            "8 bits": sz.Space.image8(),
            "3x3 patches": sz.Space.patches(shape, 3, grid=1 / 255),
            "rows": sz.Space.rows(shape, grid=1 / 255),
        }
        for name, how in (("sigma-zero", {"steps": args.queries // 2}), ("sigma-swap", {"queries": args.queries})):
            base = sz.get(name, **how).run(model, x, y, ids=ids)
            cap = x[0].numel()
            for words, space in {"real values": None, **spaces}.items():
                result = base if space is None else sz.get(name, **how).run(model, x, y, ids=ids, space=space)
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
                if words == "8 bits":
                    low, high = paired_bootstrap(result.l0.cpu().numpy(), base.l0.cpu().numpy(), cap=cap)
                    line["difference"] = round(result.mean_l0 / base.mean_l0 - 1, 4)
                    line["interval"] = [round(end / base.mean_l0, 4) for end in (low, high)]
                if space is not None:
                    line |= {"successes": int(result.success.sum()), "saved": saved(model, result, y)}
                say(line, args.out)


if __name__ == "__main__":
    main()
