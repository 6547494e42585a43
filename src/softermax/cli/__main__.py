"""``python -m softermax.cli``."""

import sys

from softermax.cli import main

sys.exit(main())
