"""The apps need torch and friends, so their tests run in a target's environment only."""

from target import TARGET

collect_ignore_glob = [] if TARGET else ["test_*.py"]
