"""`python -m isthmus_flowlog.collector`."""

import sys

from isthmus_flowlog.collector.entry import main

if __name__ == "__main__":
    sys.exit(main())
