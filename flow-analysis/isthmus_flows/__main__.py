"""`python -m isthmus_flows`: the command `isthmus-flows`."""

import sys

from isthmus_flows.entry import main

sys.exit(main())
