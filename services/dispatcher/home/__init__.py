"""The home of jobs: the shell that runs their machines.

    registry      every job that is known here
    submissions   what gateways want: submit, attach, take the result, cancel
    reports       what nodes report about attempts
    executor      carries out the effects of the machines: orders for nodes, and
      leases        slots from the pool service; the queue for them is in waiting, waiting_rounds
      delivery      events for gateways, and results that have to be kept
    job           one job: its machine, and what the shell knows about it
    kept_results, orphans, records, spans   results, ends and timelines outside of this process

May import `job`, `nodes` and `pool`. `gateways`, `service` and `main` import it.
"""
