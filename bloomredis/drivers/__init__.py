"""Operations executed with a client.

LAW: the only code that meets a client, a thread or a task.
"""
