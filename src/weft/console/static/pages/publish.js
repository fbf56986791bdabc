// Compose an event, see where it would go and why, then publish it.
import {html, api, count, plural, query, segment, shown, useMemo, useParam, useState, Link} from "../lib.js";
import {Empty, Picture, State, Table, Trouble} from "../parts.js";
import {Boxes} from "../canvas.js";
import {TraceTree} from "../forms.js";

const EXAMPLE = '{"magnitude": 6.1, "place": "Chile"}';

function Traced({event, session, number, broker}) {
  const [found, set] = useState(null), [error, fail] = useState(null);
  const ask = async () => { try { set(await api("/publish/trace", {event, session, number, broker})); fail(null); } catch (e) { fail(e); } };
  return html`${found ? html`<${TraceTree} part=${found.trace}/>` : html`<button onClick=${ask}>Which parts?<span class="unseen"> of subscription ${number} of ${shown(session)}</span></button>`}<${Trouble} error=${error}/>`;
}

export default function Publish() {
  const [text, set] = useParam("event"), [payload, setPayload] = useState(""), [durable, keep] = useState(true);
  const [found, explain] = useState(null), [error, fail] = useState(null), [done, say] = useState(""), [chosen, choose] = useState(null);
  const [session, setSession] = useState(""), [traced, trace] = useState(null), [traceError, failTrace] = useState(null);
  const event = useMemo(() => { try { const e = JSON.parse(text); return e && typeof e === "object" && !Array.isArray(e) ? e : null; } catch { return null; } }, [text]);
  const wrong = useMemo(() => { if (!text.trim() || event) return ""; try { JSON.parse(text); return "An event is a JSON object: names and values."; } catch (e) { return `This is not JSON: ${e.message}`; } }, [text, event]);
  const run = async (path, then) => { try { then(await api(path, {event, payload, durable})); fail(null); } catch (e) { fail(e); say(""); } };
  const edit = e => { set(e.target.value); explain(null); say(""); };
  const ask = async e => { e.preventDefault(); try { trace(await api("/publish/trace", {event, session})); failTrace(null); } catch (p) { trace(null); failTrace(p); } };
  const nodes = found?.hops.map(h => ({text: h.broker || "this broker", w: 200, kind: h.problem ? "bad" : h.matched ? "lit" : "", lines: h.problem ? [h.problem] : [plural(h.matched, "subscription") + (h.matched === 1 ? " matches" : " match"), h.source ? `from ${h.source}` : "published here"]}));
  const matched = found?.hops.flatMap(h => h.subscriptions.map(s => ({...s, broker: h.broker}))) || [];
  return html`<h1>Publish</h1><label for="event">Event: a JSON object, or a CloudEvent</label><textarea id="event" rows="4" spellcheck=${false} placeholder=${EXAMPLE} value=${text} onInput=${edit} aria-describedby="event-says" aria-invalid=${!!wrong}></textarea><div id="event-says" class="says small">${wrong ? html`<p class="bad" role="status">${shown(wrong)}</p>` : !text.trim() ? html`<button onClick=${() => set(EXAMPLE)}>Use an example</button>` : html`<p class="dim">${plural(Object.keys(event || {}).length, "attribute")}</p>`}</div>
    <div class="controls"><label class="field"><span>Payload (text, not seen by filters)</span><input value=${payload} onInput=${e => setPayload(e.target.value)}/></label><label class="check"><input type="checkbox" checked=${durable} onChange=${e => keep(e.target.checked)}/> durable</label></div>
    <p class="controls"><button class="main" disabled=${!event} onClick=${() => run("/publish/explain", r => { explain(r); say(""); })}>Explain</button><button disabled=${!event} onClick=${() => run("/publish", () => say("Published. The broker has stored it."))}>Publish</button><span role="status" class="good">${done}</span></p><${Trouble} error=${error} lines="2"/>
    ${found ? html`<h2>Where it goes</h2><p>${plural(found.hops.length, "broker")}, ${plural(found.matched, "subscription")}.${found.whole ? "" : " Not every broker has answered."}</p>
      <${Picture} label="of the path" table=${html`<${Table} name="path" caption="Path" rows=${found.hops} columns=${[{label: "Broker", value: h => h.broker || "this broker"}, {label: "From", key: "source"}, {label: "Matching subscriptions", key: "matched", number: true}, {label: "Problem", key: "problem"}]}/>`}><${Boxes} picture=${found.drawing} nodes=${nodes} row="62" label="The path of the event" className="low" chosen=${chosen} choose=${choose} kindOf=${() => "lit"}/><//>
      <h3>Links, and why</h3><${Table} name="choices" caption="Links" rows=${found.hops.flatMap(h => h.links.map(l => ({...l, at: h.broker})))} empty=${html`<${Empty} title="No neighbours to choose from">The event stays at the broker where it is published.<//>`} columns=${[{label: "At", key: "at"}, {label: "Neighbour", key: "peer"}, {label: "Sent", value: l => l.sent ? "sent" : "not sent", show: l => html`<${State} kind=${l.sent ? "good" : "idle"}>${l.sent ? "sent" : "not sent"}<//>`}, {label: "Why", key: "reason", class: "wide"}]}/>
      <h3>Subscriptions that match</h3><${Table} name="matching" caption="Subscriptions that match" rows=${matched} total=${found.matched} empty=${html`<${Empty} title="No subscription matches">Ask below why one that should does not.<//>`} columns=${[{label: "Broker", value: s => s.broker || "this broker"}, {label: "Session", value: s => s.share || s.session, show: s => s.session ? html`<${Link} to=${"/sessions/" + segment(s.session) + query({broker: s.broker === found.hops[0].broker ? "" : s.broker})}>${shown(s.session)}<//>` : shown(s.share || "no name")}, {label: "Filter", key: "filter", class: "wide", show: s => html`<code>${shown(s.filter)}</code>`}, {label: "Reader", value: s => s.connected, show: s => html`<${State} kind=${s.connected ? "good" : "idle"}>${s.connected ? "connected" : "away"}<//>`}, {label: "Why it matches", value: () => "", show: s => s.session ? html`<${Traced} event=${event} session=${s.session} number=${s.number} broker=${s.broker === found.hops[0].broker ? "" : s.broker}/>` : null}]}/>
      <h3>Why does one not match?</h3><form class="controls" onSubmit=${ask}><label class="field"><span>Session</span><input value=${session} onInput=${e => setSession(e.target.value)} placeholder="alerts"/></label><button disabled=${!session.trim()}>Trace</button></form><${Trouble} error=${traceError} lines="2"/>${traced && html`<p>${traced.matches ? "Its first subscription matches." : "Its first subscription does not match."}</p><${TraceTree} part=${traced.trace}/>`}`
      : html`<${Empty} title="Nothing is published yet">Explain shows, broker by broker, where the event would go and which subscriptions match, without publishing it.<//>`}`;
}
