"""The way to the services: what is followed, what is read when somebody asks, and actions.

    sources                                 all of it, and what it fills
    fleet_watch  job_poll  instance_poll    follow the services, also if nobody looks
    quiet_jobs                              ends jobs whose end is not in the log
    session_reads  room_reads               read a list, or one thing of it, when somebody asks
    job_reads  node_reads  cell_reads       read one thing when somebody asks; keep it for a while
    actions                                 change something, with the operator's own token
    polling  kept                           asking again and again; what was read a moment ago
    calls  problems                         channels and tokens; what cannot be read

One service that fails does not stop what the others tell. May import `store`, `runtime` and the
generated code.
"""
