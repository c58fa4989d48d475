"""A filter as a whole: load, save, copy, merge, rebuild, describe."""
