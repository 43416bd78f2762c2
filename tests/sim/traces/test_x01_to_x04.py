"""The traces X1 to X12 of the dispatch protocol (docs/decisions/006), one test each; this file holds X1 to X4.

Each test plays its trace twice: with all rules on, when nothing is violated and everything settles, and with the
trace's rule switched off, when the very violation of the trace is seen.
"""
