"""The pool service: nodes, pools, selection, turn affinity and leases.

It has no state of its own: it checks requests, runs the scripts in lua/ and translates replies.

    main                 the process
    service              the RPCs
    stream, sweeper, cells/  the Operate stream of a dispatcher; the removal of silent nodes; cells
    operations           one method for each operation of the contract
    attempts/, registry  the operations of every job; the registration and removal of nodes
    refusals, metrics, spans, validate   shared by the modules above them
    fleet/               what operators see (reads only)
    codes                numbers and words of the scripts, and their meaning in the contract

Each line may import those below it, and none above. Must not import another service.
"""
