"""What goes wrong: one family a file. A fault is injected, and later healed.

A fault says what it may cost (`excuses`; docs/robustness.md); everything else that clients and
nodes lose by it is a violation.
"""
