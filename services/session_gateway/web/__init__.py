"""The web entry: sessions and rooms over WebSockets, for browsers, which cannot open gRPC streams.

It is a second transport of the same sessions and rooms: `live.sessions` and `rooms.rooms` serve
its clients and those of gRPC alike. docs/web.md is the contract.

    server       listens, drains, ends
    entry        HTTP requests: refuses, answers or upgrades them
    sockets      WebSockets, from the handshake to the close frame
    room_calls   calls about rooms, by POST
    client       a client of a session: audio in, results out
    listener     a listener of a room
    peer         the connection of either: frames in, pings, its end
    direct_queue hands audio to sessions without waking a task
    close_codes  how errors close connections (pure)
    subprotocols what a client offers, its token included (pure)
    frames       frames from and to messages (pure)
    talk_page    the files of the page that this entry serves, and what it may do
    languages    the directions that nodes offer
    pace         how many frames a client may send (pure)

`page/` has the files of the talk page and no Python.

Each line may import those below it. `main` starts it; it may import `live`, `rooms`, `metrics` and
the runtime, whose `web` has what it shares with the console.
"""
