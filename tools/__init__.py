"""Programs for the work on this repository, which the package does not contain."""
