"""``python -m llpkit`` is the command line."""

from llpkit.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
