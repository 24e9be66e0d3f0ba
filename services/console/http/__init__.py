"""The HTTP server of the console.

    server            listens, drains, ends
    entry             requests: refuses them, answers them, hands them to what follows
    event_streams     documents as server-sent events, one stream per reader
    watched           documents that are watched, each computed once for all readers
    page              the files of the pages, and what they may do in a browser
    viewers           who makes a request: cookie, header or certificate
    actions           what operators change, with an audit line for each attempt
    requests          bodies and queries, limited
    routes            what is at a path (pure)
    failed_sign_ins   how many wrong tokens an address may send (pure)
    turns             one computation at a time, and how long it takes
    due               when a watched document is computed again (pure)
    merge_patch       the difference of two documents, RFC 7396 (pure)
    backend           what the server needs from the rest of the console

Each line may import those below it.
"""
