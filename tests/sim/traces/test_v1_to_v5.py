"""Traces V1 to V5: every occurrence settles (LIVE), also one whose withdrawal crossed its execution.

Each test lives its trace twice: with all rules, where nothing is violated and everything settles, and without the rule
that the trace is named for, where the violation that the rule removes is seen. V6 to V18 are in the modules beside.
"""
