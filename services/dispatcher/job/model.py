"""The phases of a job, and what every event does in each. The machine is in job_machine.

The phases, and the contract's JobState for each:

    NEW        nothing has happened yet                                    NEW
    SELECTING  the pool has been asked for a node                          SELECTING, RETRYING
    WAITING    all nodes are full, or the quota; in the queue              SELECTING, RETRYING
    PLACED     one attempt is at a node, unacknowledged (two: hedged)      DISPATCHED
    RUNNING    one attempt is acknowledged                                 ACKED
    LOST       its node's connection is gone; it may come back             ACKED
    FETCHING   the job was done before; its result is looked for           DONE
    OVER       delivered, failed or cancelled                              DONE, FAILED, CANCELLED

Every event in every phase ("-": nothing happens):

                  NEW      SELECTING WAITING  PLACED   RUNNING  LOST     FETCHING OVER
    start         select   -         -        -        -        -        -        -
    given         late     place     late     place    late     late     late     late
    had reserved  -        place     -        -        -        -        -        stop
    had running   -        adopt     -        -        -        -        -        stop
    had done      -        fetch     -        -        -        -        -        -
    had failed    -        fail      -        -        -        -        -        -
    all full      -        wait      -        -        -        -        -        -
    bound full    -        wait      -        -        -        -        -        -
    over quota    -        wait      -        -        -        -        -        -
    refused       -        fail      -        -        -        -        -        -
    room          -        -         select   -        -        -        -        -
    send failed   -        -         -        next     lost     -        lost     -
    node lost     -        -         -        next     lost     -        lost     -
    node back     -        -         -        -        -        commit   -        -
    acked         -        late      late     run      -        back     hold     late
    committed     -        -         -        -        -        -        -        -
    no room       -        -         -        -        next     next     -        -
    superseded    -        -         -        -        next     next     -        -
    rejected      -        -         -        next     next     next     fetch    -
    partial       -        -         -        run+pass pass     back+pass hold+pass -
    result        -        late      late     done     done     done     done     late
    failed        -        late      late     next     next     next     fail     late
    hopeless      -        late      late     next     next     next     fail     late
    kept          -        -         -        -        -        -        done     -
    not kept      -        -         -        -        -        -        send     -
    timer ack     -        -         -        next     -        -        fail     -
    timer hedge   -        -         -        hedge    -        -        -        -
    timer job     -        -         -        -        next     next     fail     -
    timer grace   -        -         -        -        -        next     -        -
    timer wait    -        -         fail     -        -        -        -        -
    timer bound   -        -         select   -        -        -        -        -
    timer ask     -        ask       -        -        -        -        -        -
    deadline      -        fail      fail     fail     fail     fail     fail     -
    cancel        cancel   cancel    cancel   cancel   cancel   cancel   cancel   -

"given": the pool has reserved a slot; "had ...": the pool tells of an attempt that the job has
already, since another instance was its home before. "hopeless": failed, and not worth a retry.

"late": nobody wants this answer any more. A node is told to stop, a slot is given back, a report is
confirmed and dropped; nothing else changes. What comes from an attempt that is not alive is late in
every phase. An attempt that was given up stays so, even if its acknowledgement comes then: its node
has been told to stop. (An acknowledgement in time whose reservation is over is the pool's to judge:
commit takes the node again if it has room, and else answers "no room".)

A result or failure of an attempt that is not known yet, while the pool is asked or the job waits,
is left alone: it may be of the attempt that the pool will tell of (a job that comes behind others
waits before it asks), and the node says it again when that is sent.

"next": the attempt ends. If another is alive, that one goes on; else, if tries are left, the pool
is asked again, without the nodes that were tried; else the job fails with this attempt's reason. If
the pool has no other nodes than those, they are tried again when the job has waited for room.

Two kinds of unacknowledged attempts are "lost" instead of "next" when their node is not reached or
its connection ends, because the node is most likely looking for another dispatcher: one that a
turn's binding placed, since its node has the beginning of the sentence; and one that an earlier
home made, since its node may run it, which is waited for as long as for an acknowledgement.

The slot of an attempt whose connection was lost after it may have been sent is not free before the
node was told to stop: the pool sees to that (lua/release.lua). After a miss (job_rules) the pool is
asked again after a pause ("timer ask"), at once after the first.

A node that is back gets the assignment once more ("send") when the pool says that its slot is the
job's ("commit", then "committed"): a process that started anew has given it back, and another job
may have it. An attempt that was not acknowledged has its reservation, and is sent at once. If the
pool answers "no room", the node is asked for the result only: it may have done the job meanwhile.

In FETCHING, "send" asks for the result and no more: the job has no slot, so a node that does not
have it rejects. It may have been kept just before the node was asked, so it is looked for once more
("fetch"); then the job fails. (Its home and its node have died together; or this instance is not
its home any more, and another one has delivered it.)

A job that is LOST out of FETCHING goes back there ("back" is "hold"), takes what was kept ("kept"
is "done"), has no next ("next" is "fail"), and no slot to ask for ("commit" is "send").
"""

from enum import Enum, auto

from lingua_scheduler.v1 import common_pb2


class Phase(Enum):
    """Where a job is; see the table above."""

    NEW = auto()
    SELECTING = auto()
    WAITING = auto()
    PLACED = auto()
    RUNNING = auto()
    LOST = auto()
    FETCHING = auto()
    OVER = auto()


# Not of OVER, which has three; and SELECTING is RETRYING after an attempt.
STATES = {
    Phase.NEW: common_pb2.JOB_STATE_NEW,
    Phase.SELECTING: common_pb2.JOB_STATE_SELECTING,
    Phase.WAITING: common_pb2.JOB_STATE_SELECTING,
    Phase.PLACED: common_pb2.JOB_STATE_DISPATCHED,
    Phase.RUNNING: common_pb2.JOB_STATE_ACKED,
    Phase.LOST: common_pb2.JOB_STATE_ACKED,
    Phase.FETCHING: common_pb2.JOB_STATE_DONE,
}
