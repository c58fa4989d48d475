"""The tasks that the sides are given: their items, their sizes, and the checks of the answers."""
