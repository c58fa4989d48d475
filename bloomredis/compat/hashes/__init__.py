"""Hash functions and number conversions of other systems, for one item and for batches.

Pure arithmetic, equal to the originals bit for bit; no module here knows a layout.
"""
