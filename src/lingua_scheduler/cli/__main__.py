"""`python -m lingua_scheduler.cli`, the same as `lingua`."""

from lingua_scheduler.cli import main

if __name__ == "__main__":
    main()
