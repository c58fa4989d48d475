"""`python -m bloomredis` is the command `bloomredis`."""

from bloomredis.cli import main

if __name__ == "__main__":  # a worker process of the demo imports this module as well
    main()
