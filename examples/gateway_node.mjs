// A client of the HTTP gateway for Node 18 or newer, without any package.
// Start a broker first: weft serve --gateway 9380

const gateway = process.env.GATEWAY ?? "http://localhost:9380";
const wait = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));

// Publish CloudEvents; returns when the broker has stored them.
export async function publish(...events) {
  const answer = await fetch(`${gateway}/events`, {
    method: "POST",
    headers: { "Content-Type": "application/cloudevents-batch+json" },
    body: JSON.stringify(events),
  });
  if (!answer.ok) throw new Error((await answer.json()).detail);
}

// The events that match a filter, for ever: a connection that is lost is opened again after the last event.
export async function* subscribe(where, ready = () => {}) {
  let last = "";
  for (;;) {
    try {
      const headers = last ? { "Last-Event-ID": last } : {};
      const answer = await fetch(`${gateway}/events?where=${encodeURIComponent(where)}`, { headers });
      if (!answer.ok && answer.status < 500) throw Object.assign(new Error((await answer.json()).detail), { final: true });
      let buffer = "";
      for await (const chunk of answer.body.pipeThrough(new TextDecoderStream())) {
        buffer += chunk;
        for (let end; (end = buffer.indexOf("\n\n")) >= 0; buffer = buffer.slice(end + 2)) {
          const frame = { event: "", id: "", data: "" };
          for (const line of buffer.slice(0, end).split("\n")) {
            if (line === ": complete") ready();
            const colon = line.indexOf(": ");
            if (colon > 0) frame[line.slice(0, colon)] = line.slice(colon + 2);
          }
          if (frame.event === "gap") console.warn("events are missing", frame.data);
          else if (frame.data && !frame.event) yield JSON.parse(frame.data);
          last = frame.id || last;
        }
      }
    } catch (error) {
      if (error.final) throw error;
    }
    await wait(1000);
  }
}

// Events of a durable subscription, one by one; each is acknowledged when the next one is asked for.
export async function* consume(id, filter) {
  const post = (path, body, method = "POST") =>
    fetch(`${gateway}/subscriptions/${id}${path}`, {
      method,
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify(body),
    });
  await post("", { filters: [{ sql: filter }] }, "PUT");
  for (;;) {
    const answer = await post("/pull", { max: 100, wait: 20 });
    if (!answer.ok) {
      await wait(1000);
      continue;
    }
    const offsets = answer.headers.get("weft-offsets").split(", ").map(Number);
    for (const [at, event] of (await answer.json()).entries()) {
      yield event;
      await post("/ack", { offsets: [offsets[at]] });
    }
  }
}

const quake = (id, magnitude) => ({ specversion: "1.0", id, source: "/usgs", type: "quake", magnitude });

if (process.argv[1] === new URL(import.meta.url).pathname) {
  const count = Number(process.argv[2] ?? 3);
  const alerts = consume("node-alerts", "magnitude >= 6");
  const first = alerts.next();
  await new Promise((ready) => {
    (async () => {
      let seen = 0;
      for await (const event of subscribe("magnitude >= 5", ready)) {
        console.log("live", event.id, event.magnitude);
        if (++seen === count) break;
      }
      console.log("pulled", (await first).value.id);
      await alerts.next(); // acknowledges the first
      process.exit(0);
    })();
  });
  await publish(quake("q0", 4.2), ...Array.from({ length: count }, (_, n) => quake(`q${n + 1}`, 6 + n / 10)), quake("last", 7));
}
