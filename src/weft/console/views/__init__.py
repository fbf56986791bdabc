"""What the pages of the group Understand show, computed from the structures that brokers use. No page, no socket.

Each module has a request, which a page keeps in its address, and a function of it that returns what is drawn. The
functions run in the console's worker: requests and answers are plain values.
"""
