"""The JSON documents of the console's API.

    documents                                      a document by its path and query
    overview  nodes  jobs  sessions  rooms         one module for each kind
    instances  search                              the same
    backend                                        documents, actions and sources together
    query                                          checks of parameters
    explanations                                   what each reason of a failure means

Times are in ms since the epoch. What is not known is left out: no document contains null, which
means "remove" in a merge patch. None contains anything that was said. May import `services` and
`store`.
"""
