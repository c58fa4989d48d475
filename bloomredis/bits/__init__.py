"""The arithmetic from items to bits.

LAW: this package computes only.  It knows no keys, scripts, replies or headers.
"""
