"""The three services, and the runtime that they share.

The way of an utterance is the way through these folders: `session_gateway` cuts it, `dispatcher`
gets it to a node, `pool_service` chooses that node. `runtime` is what all of them stand on. A
service never imports another service: they meet only in the contracts of `protos/`.
"""
