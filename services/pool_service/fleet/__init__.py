"""What people see of the fleet: nodes, pools and free capacity. Reads only.

May import `codes`; must not import `operations`, `registry` or `sweeper`.
"""
