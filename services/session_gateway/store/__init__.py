"""What Redis knows of a session.

May import `session` for its types; must not import `live` or `dispatcher`.
"""
