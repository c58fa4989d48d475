"""Items become bits.

LAW: pure arithmetic.  Nothing here knows a key, a script, a reply or a header.
"""
