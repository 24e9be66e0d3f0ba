"""Calls between the services of one process, without gRPC.

A call carries serialized messages, metadata and a status, as it does over gRPC, and both sides get
the objects of `grpc.aio`: the caller a channel, the handler a servicer context. So neither side
knows the difference.

It imports nothing of ours. `rpc.server` and `rpc.channels` use it, and so does the program that
puts several services into one process.
"""
