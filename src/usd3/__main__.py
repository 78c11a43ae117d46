"""python -m usd3"""

import sys

from usd3.cli import main

sys.exit(main())
