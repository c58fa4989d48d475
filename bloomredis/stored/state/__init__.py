"""State of a stored filter as an object knows it, and the calls about its items."""
