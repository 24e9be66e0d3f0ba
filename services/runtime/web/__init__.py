"""What every HTTP server of the scheduler needs: the web entry of a gateway, and the console.

    listener     accepts connections
    server       listens with TLS that follows its files, and ends
    connections  how many connections there may be
    page_files   the files of a page, read once
    credentials  who makes a request, as the guard asks for it
    refusals     how errors look over HTTP
    access       which hosts and origins are accepted (pure)

Each line may import those below it. It may import `rpc`, `auth` and what they import; services that
have an HTTP server import it.
"""
