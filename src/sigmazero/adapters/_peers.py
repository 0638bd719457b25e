"""The other libraries that bridges lead to, and the line to type for one that is missing."""

import importlib
from dataclasses import dataclass
from importlib import metadata
from typing import Any

from sigmazero.core.extras import MissingExtra


@dataclass(frozen=True)
class Peer:
    """A library: the module to import, the package to install, and the oldest version that is known to work."""

    module: str
    package: str
    least: str
    options: str = ""  # of pip, where the library must be installed in a special way

    def load(self, part: str = "") -> Any:
        """Return the library's module, or a part of it; where that fails, raise one line that says what to type."""
        version = self.version
        try:
            return importlib.import_module(f"{self.module}.{part}" if part else self.module)
        except Exception as error:  # a broken installation fails in many ways besides ImportError
            raise MissingExtra(
                f"{self.package} {version} does not work ({error!r}); repair it: {self.advice}"
            ) from error

    @property
    def version(self) -> str:
        """Return the version that is installed."""
        try:
            return metadata.version(self.package)
        except metadata.PackageNotFoundError:
            raise MissingExtra(f"{self.package} is not installed; install it with: {self.advice}") from None

    @property
    def advice(self) -> str:
        """Return the line to type."""
        return f"pip install {self.options}'{self.package}>={self.least}'"


PEERS = {
    "foolbox": Peer("foolbox", "foolbox", "3.3"),
    # Its requirements hold back a whole environment, and attacks need none but those that we have too.
    "torchattacks": Peer("torchattacks", "torchattacks", "3.5", "--no-deps "),
    "art": Peer("art", "adversarial-robustness-toolbox", "1.18"),
    "adv-lib": Peer("adv_lib", "adv-lib", "0.2.3"),
    "secml-torch": Peer("secmlt", "secml-torch", "1.4"),
    "attackbench": Peer("attackbench", "attackbenchlib", "2"),
}
