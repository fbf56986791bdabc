"""The web console: pages that show, operate and explain a broker, below `/ui` of the HTTP gateway.

    app.py        one request: a page, a file, a question of a page, or the live connection of a tab
    login.py      who is logged in: tokens in exchange for cookies
    live.py       one WebSocket per tab, which carries the newest state of each topic that the tab shows
    worker.py     a process for work that takes long, such as layouts: 5 seconds per job
    assets.py     the files of the pages; static/vendor has those that others wrote, with vendor.toml
    page.py       what a page is made of
    samples.py    what was measured in the last minutes, in rings of a fixed size
    pages/        one module per page: its questions and its live topics
    static/       the shell (app.js), its parts (lib.js, parts.js, canvas.js, forms.js), one script per page
    process.py    the gateway with a console, as `weft serve` starts it

How to add a page `ring`:

1. `pages/ring.py` has a `PAGE = ConsolePage("ring", "Ring", "Understand", ...)` with its `routes` and `topics`. A route
   is an async function of a `ConsoleCall` that returns what is to be sent as JSON. It asks the broker through
   `call.client.client`, the ordinary client of whoever is logged in, and computes what takes longer than some
   milliseconds with `await call.services.worker.run(function, *arguments)`.
2. `static/pages/ring.js` has the page as its default export: a component that gets `rest`, the parts of the address
   after `/ui/ring`. It draws what its routes answer with the parts of `parts.js` and `canvas.js`.
3. `pages/__init__.py` lists it. Navigation, command box, and the tests of all pages (no message in the browser's
   console, axe, hostile texts, sizes) find it there.

No layout, no algebra and no other truth about filters is computed in JavaScript. Names, filters and payloads are text
of others: they become text nodes, through `shown`, never markup.
"""
