"""What all kinds of tests share: real processes of every part, and peers that can misbehave.

process       a process: started, watched, frozen, killed; its output and its log
services      the three services as processes, with settings of a test's choice
scheduler     a whole scheduler: so many processes of each service, and nodes
node_process  a node program as a process that records what happens to it
commands      `lingua` and `lingua up` as processes
nursery       forks processes from one that has imported everything
redis_servers, redis_cluster, redis_tls
              Redis servers of a test's own, a sentinel, a cluster that can be resharded, TLS
scene         one test's nodes and gateways at a dispatcher
raw_node, raw_gateway, raw_client, pool_client
              peers that say exactly what a test has them say

Nothing here imports tests of a particular kind.
"""
