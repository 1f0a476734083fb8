"""`python -m multilane`: the program, for a Python whose scripts are not on the PATH.

Thread: application.
"""

from multilane.cli.main import main

main()
