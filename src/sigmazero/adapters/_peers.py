"""The other libraries: which versions are known to work, and one line for whoever lacks one."""

import importlib
import re
from dataclasses import dataclass
from importlib import metadata
from typing import Any

from sigmazero.core.extras import MissingExtra


@dataclass(frozen=True)
class Peer:
    """A library: the module to import, the package to install, and the versions it may have: at least, and below."""

    module: str
    package: str
    least: str
    below: str
    install: str = ""  # what to write after pip install, where that is not the package's name

    def load(self, part: str = "") -> Any:
        """The library's module, or a part of it; one line where it is not there or has another version."""
        self.check()
        name = f"{self.module}.{part}" if part else self.module
        try:
            return importlib.import_module(name)
        except Exception as error:  # a broken installation fails in many ways besides ImportError
            raise MissingExtra(
                f"{self.package} {self.version} is installed and cannot be imported ({type(error).__name__}: {error}); "
                f"repair it with: {self.advice}"
            ) from error

    @property
    def version(self) -> str:
        """The version that is installed."""
        try:
            return metadata.version(self.package)
        except metadata.PackageNotFoundError:
            raise MissingExtra(f"{self.package} is not installed; install it with: {self.advice}") from None

    @property
    def advice(self) -> str:
        """The line to type."""
        return f"pip install {self.install or repr(f'{self.package}>={self.least},<{self.below}')}"

    def check(self) -> None:
        """Refuse a version that nobody has tried."""
        version = self.version
        if not _numbers(self.least) <= _numbers(version) < _numbers(self.below):
            raise MissingExtra(
                f"{self.package} {version} is installed; versions from {self.least} to below {self.below} work: "
                f"{self.advice}"
            )


def _numbers(version: str) -> tuple[int, ...]:
    """The numbers at the beginning of a version.

    >>> _numbers("1.20.1"), _numbers("3.3.4rc1") < _numbers("4")
    ((1, 20, 1), True)
    """
    return tuple(int(number) for number in re.findall(r"\d+", version.partition("+")[0])[:3])


PEERS = {
    "foolbox": Peer("foolbox", "foolbox", "3.3", "4"),
    # Its requirements hold back a whole environment, and attacks need none but those that we have too.
    "torchattacks": Peer("torchattacks", "torchattacks", "3.5", "4", "--no-deps 'torchattacks>=3.5,<4'"),
    "art": Peer("art", "adversarial-robustness-toolbox", "1.18", "2"),
    "adv-lib": Peer("adv_lib", "adv-lib", "0.2.3", "0.3"),
    "secml-torch": Peer("secmlt", "secml-torch", "1.4", "2"),
    "attackbench": Peer("attackbench", "attackbenchlib", "2", "3"),
}
