"""Reports as HTML pages: one file each, with its style, script and data inside, and nothing fetched."""
