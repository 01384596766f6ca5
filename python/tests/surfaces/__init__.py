"""The Python runner of `tests/surfaces/cases.tsv`: a file for each group, a test for each case."""
