"""`python -m fleetlog`: the command line."""

from fleetlog.cli import main

if __name__ == "__main__":
    main()
