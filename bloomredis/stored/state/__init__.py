"""The state that an object knows of its stored filter, and the calls about its items."""
