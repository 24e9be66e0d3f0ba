"""Sessions: clients' streams, how speech is cut, results in order, resume.

The pure cores are `gatherer` (where speech is cut), `result_queue` and `session_core` (with
`session_steps`); they know neither I/O nor clock. `live_session` and `sessions` are the shell
around them, `voice_activity` listens for voice if a session asks for it, `dispatcher_link` brings
jobs to dispatchers, `session_record` and `session_store` are what other gateways know.
Nothing but the CLI imports this folder; it imports the runtime and the contracts only.
"""
