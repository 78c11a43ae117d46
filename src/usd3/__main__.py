"""python -m usd3"""

import sys

from usd3._children import end_with_parent
from usd3.cli import main

if __name__ == "__main__":
    end_with_parent()
    sys.exit(main())
