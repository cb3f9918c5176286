"""`python -m kyu` is the `kyu` command."""

import sys

from kyu.cli import main

sys.exit(main.main())
