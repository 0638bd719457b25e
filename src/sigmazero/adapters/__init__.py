"""Bridges to other libraries, one module each, imported when it is first used ([bridges](bridges.md)).

`from sigmazero.adapters.foolbox import SigmaZero` is our attack as foolbox's; `sz.foreign` makes one of theirs ours.
"""

__all__ = ["adv_lib", "art", "attackbench", "foolbox", "foreign", "secmlt", "torchattacks"]
