"""Sessions: send speech to a gateway, receive results in order, resume after a lost connection.

`session` is the public class, `sender` takes audio, `link` runs the protocol over streams, `inbox`
keeps what the app has yet to read, and `protocol/` is the pure core. May import `_transport` and
the modules at the top of the SDK; must not import `node`.
"""
