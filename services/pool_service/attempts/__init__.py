"""The operations of every job: allocate, commit, release and complete an attempt.

    attempts        the operations, as dispatchers call them
    across_cells    the same for a node that may be in another cell than the job
    calls           the script calls
    elsewhere       the search in other cells, a pure machine

Each line may import those below it, and none above.
"""
