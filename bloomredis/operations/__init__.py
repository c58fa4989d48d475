"""The verbs of filters, as generators that yield steps and receive replies.

LAW: one file a public class or a family of verbs; no I/O.
"""
