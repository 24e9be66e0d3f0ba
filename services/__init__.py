"""The three services, and the runtime that they share.

An utterance goes through these folders: `session_gateway` cuts it, `dispatcher` sends it to a node,
`pool_service` chooses that node. All of them use `runtime`. A service never imports another
service; they communicate only through the contracts of `protos/`.
"""
