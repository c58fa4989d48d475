"""An object's knowledge of its stored filter, and the calls about its items."""
