"""The pure state machine of one job, from its submission to its end.

    model        the phases and their table, the rules, and everything the machine knows
    machine      the events: what happens to a job
    transitions  what an event changes, and the effects it asks for
    effects      attempts, and what the shell has to carry out
    endings      the ways in which an attempt ends without a result
    timeline     when each step of the job began and ended

No I/O, no clock, no logging, no asyncio. Imports nothing from the other packages of the dispatcher.
`home` drives the machine; nothing here knows about it.
"""
