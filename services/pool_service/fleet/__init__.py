"""What operators see of nodes, pools and free capacity. Reads only.

    capacity         free slots by direction, for metrics
    watch            the streams that tell every change of the fleet
    sampler          reads samples of the fleet for them
    offered          the directions that clients may choose from (pure)
    pools            pools and their slots
    nodes            nodes and their leases
    fleet_messages   changes as messages of limited size (pure)
    sample           which nodes have changed from one sample to the next (pure)
    capability_sets  the distinct capabilities of nodes (pure)
    live             the packed record of a node
    instances        the instances of all services
    directions       the labels of directions (pure)

Each line may import those below it. May import `codes`; must not import other modules of the pool
service.
"""
