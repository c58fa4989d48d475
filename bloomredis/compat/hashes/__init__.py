"""Hash functions and number conversions of other systems, for one item and for batches.

The functions equal the originals bit for bit.  They are pure arithmetic and independent of the layouts.
"""
