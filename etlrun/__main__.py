"""`python -m etlrun`."""

from etlrun.cli import main

if __name__ == "__main__":
    main()
