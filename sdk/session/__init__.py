"""Sessions: speak to a gateway, hear results in order, resume after a lost connection.

May import `_transport` and the files beside it; must not import `node`.
"""
