"""The session gateway: streams of clients, cuts of speech, results in order, resumes.

An utterance passes through `live` (the shell of a session), `session` (its pure core), `store`
(the cut is recorded) and `dispatcher_link` (its job is submitted); its result comes back the
same way. `service` is its gRPC service, `web` its WebSockets, and `main` its process;
`views` reads records for operators.

Only the CLI imports this package. It imports the runtime and the generated code.
"""
