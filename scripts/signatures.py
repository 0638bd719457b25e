"""Write src/sigmazero/attacks/signatures.pyi: what type checkers and editors know of `sz.sigma_zero` and the others.

python -m scripts.signatures
"""

from inspect import Parameter
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from sigmazero.attacks.functions import FUNCTIONS, signature
from sigmazero.attacks.registry import ATTACKS, find
from sigmazero.core.attack import ALIASES, Attack, RunOptions

STUB = Path(__file__).parents[1] / "src" / "sigmazero" / "attacks" / "signatures.pyi"
HEAD = '''"""Written by `python -m scripts.signatures` from the registry."""

from typing import Any, Literal, Unpack

from torch import Tensor

from sigmazero.core.attack import Attack, RunOptions
from sigmazero.core.inputs import Array
'''
REFINE = (
    "def refine(model: object, x: Array, y: Array, x_adv: Array, queries: int = ..., **options: Any) -> Tensor: ...\n"
)


def stub() -> str:
    """Return the whole file, as `ruff format` would leave it."""
    hints = get_type_hints(RunOptions, localns={"Space": object})
    run = {"steps": "int"} | {here: spelled(hints[here]) for here in ALIASES.values() if here in hints}
    common = {other: run[here] for other, here in ALIASES.items()} | {"norm": "Literal[0]", "targets": "Array | None"}
    parts = [HEAD, _options("FunctionOptions", "RunOptions", common)]
    return "".join([*parts, *(declared(name) for name in FUNCTIONS), REFINE])


def declared(name: str) -> str:
    """Return the declaration of a function, and of its options where other libraries have names for parameters."""
    attack, parameters = ATTACKS[find(name)], signature(name)
    types = {each.name: spelled(each.annotation) for each in parameters if each.annotation is not each.empty}
    also = {other: types[here] for other, here in attack.aliases.items()}
    taken = f"{type(attack).__name__}Options" if also else "FunctionOptions"
    before = _options(taken, "FunctionOptions", also) + "\n" if also else ""
    lines = ["model: object", "inputs: Array", "labels: Array"]
    for each in parameters[3:]:
        if each.kind is Parameter.KEYWORD_ONLY and "*" not in lines:
            lines.append("*")
        lines.append(f"{each.name}: {types[each.name]} = ...")
    lines.append(f"**options: Unpack[{taken}]")
    return f"{before}def {name}(\n" + "".join(f"    {line},\n" for line in lines) + ") -> Tensor: ...\n"


def spelled(hint: Any) -> str:
    """Return a type as one writes it; what is neither plain, a word nor an attack is any object."""
    if get_origin(hint) in (Union, UnionType):
        return " | ".join(dict.fromkeys(map(spelled, get_args(hint))))
    if get_origin(hint) is Literal:
        return f"Literal[{', '.join(map(_quoted, get_args(hint)))}]"
    if hint is NoneType:
        return "None"
    plain = hint in (int, float, bool, str) or hint is Attack
    return hint.__name__ if plain else "object"


def _quoted(word: object) -> str:
    return f'"{word}"' if isinstance(word, str) else repr(word)


def _options(name: str, base: str, types: dict[str, str]) -> str:
    return f"\nclass {name}({base}, total=False):\n" + "".join(f"    {each}: {t}\n" for each, t in types.items())


if __name__ == "__main__":
    STUB.write_text(stub(), encoding="utf-8")
