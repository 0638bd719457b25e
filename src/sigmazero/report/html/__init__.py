"""Pages that need nothing but a browser: one file each, no network, usable from disk."""
