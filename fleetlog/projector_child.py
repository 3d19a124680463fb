"""The process that `fleetlog up` starts to keep the tables."""

import sys

from fleetlog.composition import project_as_child

if __name__ == "__main__":
    sys.exit(project_as_child())
