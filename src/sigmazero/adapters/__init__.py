"""Bridges to other libraries, one module each, imported when it is first used (docs/bridges.md).

Into them, all attacks of the registry as natives:

    from sigmazero.adapters.foolbox import SigmaZero            attack(fmodel, images, labels, epsilons=[5, 10])
    from sigmazero.adapters.torchattacks import SigmaZero       SigmaZero(model, steps=100)(images, labels)
    from sigmazero.adapters.art import SigmaZero                SigmaZero(classifier).generate(x, y)
    from sigmazero.adapters.secmlt import SigmaZero             SigmaZero(y_target=3)(model, loader)
    from sigmazero.adapters.adv_lib import sigma_zero           sigma_zero(model, inputs, labels)
    from sigmazero.adapters.attackbench import sigma_zero       attackbench.run_attack(model, loader, sigma_zero, "l0")

Out of them, any attack of theirs as one of ours: `sz.foreign` (see `foreign`).
"""

__all__ = ["adv_lib", "art", "attackbench", "foolbox", "foreign", "secmlt", "torchattacks"]
