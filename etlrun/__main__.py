"""Entry point of `python -m etlrun`."""

from etlrun.cli.main import main

if __name__ == "__main__":
    main()
