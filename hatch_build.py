"""Make the links of the project, and absolute links in its README, from one setting: where the repository is."""

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface


class Links(MetadataHookInterface):
    """Add `urls` and `readme` to the metadata; `repository` is in pyproject.toml."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Called by hatchling."""
        base = str(self.config.get("repository", "")).rstrip("/")
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        metadata["urls"] = {}
        if base:
            raw = f"{base}/raw/main/"
            text = re.sub(r"(!\[[^]]*\]\()(?!https?:|#)", rf"\g<1>{raw}", text)
            text = re.sub(r"((?<!!)\[[^]]*\]\()(?!https?:|#)", rf"\g<1>{base}/blob/main/", text)
            pages = {"Documentation": "docs/index.md", "Changelog": "CHANGELOG.md"}
            metadata["urls"] = {"Repository": base, "Issues": f"{base}/issues"}
            metadata["urls"] |= {name: f"{base}/blob/main/{path}" for name, path in pages.items()}
        metadata["readme"] = {"content-type": "text/markdown", "text": text}
