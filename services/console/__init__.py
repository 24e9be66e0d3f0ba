"""The operators' console: JSON documents about the scheduler, pages that show them, actions.

It has no state but what it reads from the services, keeps in memory and can read again.

    main         the process
    backend      puts what follows together for it
    http         HTTP server: sign-in, documents, event streams, actions, static files
    documents    the documents, pure functions of the store and a query
    metrics      of the process
    services     the way to the services: pollers, actions
    store        what the pollers have read, bounded (pure)

Each line may import those below it, and the runtime; no other service. `page/` has the files of the
pages and no Python.
"""
