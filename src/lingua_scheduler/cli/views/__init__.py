"""Text output: tables, pages for nodes, jobs and sessions, and a live line.

Must not import other parts of `cli`.
"""
