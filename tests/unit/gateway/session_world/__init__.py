"""A world for one session on a virtual clock: a client, gateways, a store and a dispatcher.

Whenever things may go one way or another, the world makes a choice (see job_world). The same
choices give the same run, and a failing run is shortened by leaving choices out. Choice 0 is
harmless.

The client does what the SDK does: it keeps chunks until they are acknowledged, counts the results
that it has seen, and resumes with both. A gateway is a `SessionCore` and what its shell would do;
it may leave, die without a word, or continue for a while after another has taken the session over.
The store deletes cuts when told to, refuses old epochs, and may write what it reported as failed.
The dispatcher has its jobs by id.

The promises that are checked are in test_session_properties.
"""
