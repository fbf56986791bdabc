"""The HTTP gateway: publish, subscribe and ask with curl, a browser, or any language.

    problems.py     errors as application/problem+json
    cloud_http.py   CloudEvents in HTTP requests and answers
    frames.py       events in streams: server-sent events, lines of JSON, WebSocket messages
    resources.py    what requests and answers look like
    openapi.py      their description, made from the types
    clients.py      the clients of the principals that are logged in
    feeds.py        streams without a name
    durable.py      subscriptions with a name: streams, pull, ack and nack
    routes.py       every resource and what it does
    app.py          one request: who it is, what it may cost, and how it ends
    process.py      the gateway as a process

It is an ordinary client of a broker, which alone decides what a principal may do.
"""
