"""Claims on items, and their commit, release, extension and renewal."""
