"""The tasks of the sides: their items, their sizes, and the checks of the answers."""
