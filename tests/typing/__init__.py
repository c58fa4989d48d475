"""Programs of users, which type checkers read and nothing runs; `wrong` has what they must reject.

They are read in a folder of their own, in which bloomredis is an installed package like any other.
"""
