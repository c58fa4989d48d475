"""The drivers: they execute operations with a client.

LAW: the only code that knows a client, a thread or a task.
"""
