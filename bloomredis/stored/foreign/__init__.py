"""Bitmaps of other systems, which have no header."""
