"""``python -m llpkit.cli``."""

import sys

from llpkit.cli import main

sys.exit(main())
