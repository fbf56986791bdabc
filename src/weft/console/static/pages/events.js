// Stored events by a filter, then the live tail.
import {html, api, count, plural, query, rate, short, shown, useAddress, useEffect, useLive, useParam, useRef, useState, Link, Time} from "../lib.js";
import {Empty, Table, Trouble} from "../parts.js";
import {Attributes, FilterBox} from "../forms.js";

const AGES = [["", "everything stored"], ["3600", "last hour"], ["86400", "last day"]];
const KEPT = 200;

/** A search that says how far it got, and goes on on demand. */
function useSearch(filter, age, again) {
  const [state, set] = useState({events: [], scanned: 0, total: 0, done: true, error: null, loading: false});
  const stop = useRef();
  const look = async from => {
    stop.current?.abort();
    const mine = stop.current = new AbortController();
    set(old => ({...(from || {events: [], scanned: 0, total: 0, done: false}), error: null, loading: true}));
    try {
      const found = await api("/events/search", {filter, max: 100, ...(from ? {since: from.next, until: from.end} : age ? {age: +age} : {})}, mine.signal);
      if (mine.signal.aborted) return;
      const before = from || {events: [], scanned: 0, total: found.total};
      set({events: [...before.events, ...found.events], scanned: before.scanned + found.scanned, total: before.total, next: found.next, end: found.end, done: found.done, error: null, loading: false});
    } catch (error) { if (!mine.signal.aborted) set({events: [], scanned: 0, total: 0, done: true, error, loading: false}); }
  };
  useEffect(() => { if (filter !== null) look(null); return () => stop.current?.abort(); }, [filter, age, again]);
  return {...state, more: state.done || state.loading ? null : () => look(state)};
}

const plain = value => typeof value === "object" ? JSON.stringify(value) : String(value);
/** Events with their attributes, those that `first` names before the others; the rest is in the event itself. */
export function EventTable({events, caption, name, open, empty, loading, first = []}) {
  const known = new Set(events.flatMap(e => Object.keys(e.attributes))), names = [...new Set([...first.filter(n => known.has(n)), ...known])].slice(0, 8);
  return html`<${Table} name=${name} caption=${caption} rows=${events} empty=${empty} loading=${loading} columns=${[{label: "Offset", key: "offset", number: true, show: e => open ? html`<button class="sort" onClick=${() => open(e)}>${count(e.offset)}<span class="unseen"> show this event</span></button>` : count(e.offset)}, {label: "Time", key: "at", class: "tight", show: e => html`<${Time} at=${e.at}/>`},
    ...names.map(n => ({label: shown(n), value: e => e.attributes[n], class: "value", show: e => e.attributes[n] === undefined ? "" : html`<span title=${shown(plain(e.attributes[n]))}>${short(plain(e.attributes[n]), 40)}</span>`}))]}/>`;
}

function One({event, close}) {
  const box = useRef();
  useEffect(() => { box.current.showModal(); }, []);
  return html`<dialog class="command" ref=${box} aria-label="Event" onClose=${close}><h2>Event ${count(event.offset)}</h2><${Attributes} of=${event.attributes}/><h3>Payload</h3>${event.payload.size ? html`<pre>${shown(event.payload.text)}</pre><p class="dim">${plural(event.payload.size, "byte")}${event.payload.kind === "base64" ? ", shown in base64" : ""}</p>` : html`<p class="dim">none</p>`}
    <p class="controls"><${Link} to=${"/publish" + query({event: JSON.stringify(event.attributes)})}>Who gets such an event?<//> <button onClick=${() => box.current.close()}>Close</button></p></dialog>`;
}

function Tail({filter, open, first}) {
  const live = useLive(filter === null ? null : "tail:" + filter), [kept, keep] = useState([]), [held, hold] = useState(false);
  useEffect(() => { keep([]); }, [filter]);
  useEffect(() => { if (live.data?.events.length && !held) keep(old => [...live.data.events.slice().reverse(), ...old].slice(0, KEPT)); }, [live.data]);
  const d = live.data, sampled = d && kept.length && d.total > kept.length;
  return html`<h2>Live tail</h2><div class="progress" role="status">${live.problem ? html`<span class="bad">${shown(live.problem.detail)}</span>` : d ? html`<span>${rate(d.rate)} now, ${plural(d.total, "event")} since you look${sampled ? `; a sample of ${count(kept.length)} is shown` : ""}${d.dropped ? `; ${count(d.dropped)} were too fast for this page` : ""}</span>` : html`<span class="dim">connecting\u2026</span>`}<button aria-pressed=${held} onClick=${() => hold(!held)}>Pause</button></div>
    <${EventTable} name="tail" caption="Live events" events=${kept} open=${open} first=${first} empty=${html`<${Empty} title="No event yet" command="weft pub '{\u0022magnitude\u0022: 6.1}'">Whatever matches appears here as it is published.<//>`}/>`;
}

export default function Events() {
  const {params} = useAddress(), where = params.get("where") || "", [, set] = useParam("where"), [age, setAge] = useParam("age", "3600");
  const [filter, use] = useState(where ? null : ""), [again, look] = useState(0), [one, open] = useState(null), [first, order] = useState([]);
  const found = useSearch(filter, age === "all" ? "" : age, again);
  return html`<h1>Events</h1><${FilterBox} value=${where} onInput=${set} optional=${true} known=${(known, text) => { use(text.trim() ? known ? known.filter : null : ""); order(known?.attributes || []); }}/>
    <div class="controls"><label class="field"><span>From</span><select value=${age} onChange=${e => setAge(e.target.value)}>${AGES.map(([v, name]) => html`<option value=${v || "all"}>${name}</option>`)}</select></label><button onClick=${() => look(again + 1)}>Search again</button><${Link} to=${"/filters" + query({where})}>Open in the workbench<//></div>
    <h2>Stored events</h2><${Trouble} error=${found.error}/><div class="progress" role="status"><span>${plural(found.events.length, "event")} found; ${count(found.scanned)} of ${count(found.total)} compared</span>${found.total > 0 && html`<progress value=${found.scanned} max=${found.total} aria-label="Compared"></progress>`}${found.more && html`<button onClick=${found.more}>Go on</button>`}</div>
    <${EventTable} name="events" caption="Stored events" events=${found.events} open=${open} first=${first} loading=${found.loading} empty=${html`<${Empty} title="No stored event matches" command=${where ? null : "weft pub '{\u0022magnitude\u0022: 6.1, \u0022place\u0022: \u0022Chile\u0022}'"}>${where ? "Choose a longer time, or try the filter in the workbench: it shows what is probably wrong with it." : "Publish something; durable events are stored."}<//>`}/>
    <${Tail} filter=${filter} open=${open} first=${first}/>${one && html`<${One} event=${one} close=${() => open(null)}/>`}`;
}
