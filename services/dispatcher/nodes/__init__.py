"""Nodes: their streams, and the relay to nodes that are connected to other dispatchers.

- `stream`, `attempts`: what is known of one connection, and of the attempts that it was given
- `connected`: all connections, and the orders that go out on them
- `streams`: serves Connect; uses `admission`, `heartbeats`, `incoming` and `held_audio`
- `routes`: where homes send orders; uses `connected`, or `relay_client` to another dispatcher's
  `relay_server`, which remembers `unconfirmed` reports

May import `job` and `pool`. `job`, `pool` and `gateways` must not import it.
"""
