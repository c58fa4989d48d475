"""The operations of filters: generators that yield steps and receive replies.

LAW: one file for each public class or family of operations; no I/O.
"""
