"""The dispatcher: runs jobs on nodes.

    main, service   the process, and its RPCs
    gateways/       the streams of gateways, which submit jobs
    home/           the jobs that this instance runs
    nodes/          the streams of nodes, and the relay to nodes of other dispatchers
    pool/           the connection to the pool service
    job/            the pure state machine of one job
    metrics, views, validate   shared by the folders above them

Each line may import those below it, and none above. Must not import another service.
"""
