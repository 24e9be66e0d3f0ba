"""What operators see of nodes, pools and free capacity. Reads only.

    capacity    free slots by direction, for metrics
    offered     the directions that clients may choose from (pure)
    pools       pools and their slots
    nodes       nodes and their leases
    live        the packed record of a node
    instances   the instances of all services
    directions  the labels of directions (pure)

Each line may import those below it. May import `codes`; must not import other modules of the pool
service.
"""
