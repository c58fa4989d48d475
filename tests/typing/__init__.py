"""Users' programs that type checkers read and nothing runs; `wrong` has what they must reject.

They are read in a separate folder, in which bloomredis is an installed package like any other.
"""
