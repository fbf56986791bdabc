// The workbench: errors as one types, meaning, lint, relations, matches of the last hour, and what an edit changes.
import {html, api, count, plural, query, shown, useApi, useEffect, useParam, useState, Link} from "../lib.js";
import {Bars, Empty, State, Sure, Table, Trouble} from "../parts.js";
import {Attributes, FilterBox} from "../forms.js";
import {subscriptionColumns} from "../lists.js";
import {EventTable} from "./events.js";

const HOUR = 3600;

/** The stored events of the last hour that match, counted to the end: one answer after another, always saying how far. */
function useHour(filter, max = 10) {
  const [state, set] = useState(null);
  useEffect(() => {
    set(null);
    if (!filter) return;
    const stop = new AbortController();
    (async () => {
      let sum = {events: [], matched: 0, scanned: 0, total: null, minutes: new Map(), done: false}, at = {age: HOUR};
      try {
        while (!sum.done && !stop.signal.aborted) {
          const found = await api("/events/search", {filter, max: max - sum.events.length, count: true, ...at}, stop.signal);
          const minutes = new Map(sum.minutes);
          found.minutes.forEach(([m, n]) => minutes.set(m, (minutes.get(m) || 0) + n));
          sum = {events: [...sum.events, ...found.events], matched: sum.matched + found.matched, scanned: sum.scanned + found.scanned, total: sum.total ?? found.total, minutes, done: found.done};
          at = {since: found.next, until: found.end};
          if (!stop.signal.aborted) set(sum);
        }
      } catch (error) { if (!stop.signal.aborted) set({...sum, error, done: true}); }
    })();
    return () => stop.abort();
  }, [filter, max]);
  return state;
}

function Hour({filter, caption, first}) {
  const found = useHour(filter);
  if (!found) return html`<p class="dim">Counting\u2026</p>`;
  const now = Math.floor(Date.now() / 60000), bars = Array.from({length: 60}, (_, i) => { const minute = now - 59 + i; return [new Date(minute * 60000).toLocaleTimeString(), found.minutes.get(minute) || 0]; });
  return html`<${Trouble} error=${found.error}/><p role="status">${plural(found.matched, "event")} matched; ${count(found.scanned)} of ${plural(found.total ?? 0, "stored event")} of the last hour compared${found.done ? "" : " so far"}.</p>${found.matched > 0 ? html`<${Bars} bars=${bars} label=${`${caption}, per minute in the last hour`}/><p class="dim axis-note"><span>1 h ago</span><span>now</span></p><${EventTable} name="matched" caption=${caption} events=${found.events} first=${first}/>` : found.done && !found.error && html`<${Empty} title="No stored event of the last hour matches">See "Lint" for likely mistakes, or publish one and look again.<//>`}`;
}

const KINDS = [["equal", "equal", "is equal"], ["covers", "cover it", "covers"], ["covered", "covered by it", "is covered"], ["overlaps", "overlap it", "overlaps"]];
function Related({filter}) {
  const [state, set] = useState(null);
  useEffect(() => {
    const stop = new AbortController();
    (async () => {
      let sum = {counts: {equal: 0, covers: 0, covered: 0, overlaps: 0}, rows: [], sends: null, seen: 0, total: 0, page: "", done: false};
      try {
        do {
          const found = await api("/filters/related" + query({filter, page: sum.page}), undefined, stop.signal);
          const counts = {...sum.counts}, rows = [...sum.rows];
          for (const r of found.rows) if (++counts[r.relationship] <= 20) rows.push({...r.subscription, relationship: r.relationship});
          sum = {counts, rows, sends: sum.sends || found.sends, seen: found.seen, total: found.total, page: found.page, done: !found.page};
          if (!stop.signal.aborted) set(sum);
        } while (sum.page && !stop.signal.aborted);
      } catch (error) { if (!stop.signal.aborted) set({...sum, error, done: true}); }
    })();
    return () => stop.abort();
  }, [filter]);
  if (!state) return html`<p class="dim">Comparing\u2026</p>`;
  return html`<${Trouble} error=${state.error}/><p role="status">${KINDS.map(([k, many]) => `${count(state.counts[k])} ${many}`).join(", ")}; ${count(state.seen)} of ${plural(state.total, "subscription")} compared${state.done ? "" : " so far"}.</p>
    <${Table} name="related" caption="Related subscriptions" rows=${state.rows} empty=${html`<${Empty} title="Nobody subscribes to any of this">No subscription at this broker has an event in common with the filter.<//>`} columns=${[{label: "It", value: r => r.relationship, class: "tight", show: r => KINDS.find(k => k[0] === r.relationship)[2]}, ...subscriptionColumns.slice(0, 4)]}/>
    <h3>What each neighbour would be sent</h3><${Table} name="would-send" caption="What each neighbour would be sent" rows=${state.sends || []} empty=${html`<${Empty} title="No neighbours">This broker has no links, so nobody would be told.<//>`} columns=${[{label: "Neighbour", key: "link"}, {label: "Sent", value: s => s.sent ? "sent" : "not sent", show: s => html`<${State} kind=${s.sent ? "good" : "idle"}>${s.sent ? "would be sent" : "nothing new"}<//>`}, {label: "Why", key: "reason", class: "wide"}]}/>`;
}

function Covering({wide, narrow, found}) {
  return html`<div><p>${found.covers ? html`<${State} kind="good">${wide} covers ${narrow}<//>` : html`<${State} kind=${found.example ? "bad" : "warn"}>${wide} does not cover ${narrow}<//>`}</p>
    ${found.covers ? html`<p class="dim">Proof: each part of ${narrow} lies in ${wide.toLowerCase()}.</p><ul class="plain">${found.proof.map(s => html`<li><code>${shown(s.part)}</code> lies in <code>${shown(s.inside)}</code></li>`)}${!found.proof.length && html`<li>${narrow} matches no event at all.</li>`}</ul>` : found.example ? html`<p class="dim">Counter-example: this event matches ${narrow}, and not ${wide.toLowerCase()}.</p><${Attributes} of=${found.example}/>` : html`<p class="dim">No proof, and no counter-example either: patterns and comparisons between attributes cannot always be decided.</p>`}</div>`;
}
function Compare({filter}) {
  const [other, set] = useParam("with"), [known, know] = useState(null);
  const {data, error} = useApi(known ? "/filters/compare" : null, {a: filter, b: known?.filter});
  return html`<${FilterBox} value=${other} onInput=${set} known=${know} label="Second filter" placeholder="magnitude >= 6" optional=${false}/><${Trouble} error=${error}/>${known && data && html`<div class="columns"><${Covering} wide="The first" narrow="the second" found=${data.a_covers_b}/><${Covering} wide="The second" narrow="the first" found=${data.b_covers_a}/></div><p>${data.both ? html`Both match <code>${shown(data.both)}</code>.` : "No event matches both."} Merged: <code>${shown(data.merged)}</code></p>`}`;
}

function Edit({filter, first, session, number}) {
  const subs = useApi("/subscriptions" + query({session})), old = subs.data?.rows.find(r => String(r.number) === number);
  const same = !old || old.filter === filter, change = useApi(same ? null : "/filters/difference", {a: old?.filter, b: filter}), d = change.data;
  const [done, say] = useState("");
  const save = async () => { await api("/subscriptions/change", {session, number: +number, filter}); say("Saved. It holds from the next event on."); subs.reload(); };
  return html`<h2>Edit subscription ${number} of ${shown(session)}</h2><${Trouble} error=${subs.error || change.error}/>${old ? html`<p>Now: <code>${shown(old.filter)}</code></p>` : subs.data && html`<p class="bad">It has no such subscription any more.</p>`}
    ${same ? old && html`<p class="dim">Change the filter above: before you save, this shows which events of the last hour it would have gained and lost.</p>` : d && html`<div class="columns"><section><h3 class="gain">+ Gained</h3>${d.gained ? html`<${Hour} filter=${d.gained} caption="Events gained" first=${first}/>` : html`<p>Nothing: the old filter covers the new one.</p>`}</section><section><h3 class="loss">\u2212 Lost</h3>${d.lost ? html`<${Hour} filter=${d.lost} caption="Events lost" first=${first}/>` : html`<p>Nothing: the new filter covers the old one.</p>`}</section></div>
    <p class="controls"><${Sure} question="Give it this filter from the next event on?" act=${save}>Save<//></p>`}<p role="status" class="good">${done}</p>`;
}

function Known({filter, first, session, number}) {
  const {data: m, error} = useApi("/filters/meaning", {filter});
  return html`${session && html`<${Edit} filter=${filter} first=${first} session=${session} number=${number}/>`}
    <div class="columns"><section><h2>Meaning</h2><${Trouble} error=${error}/>${m && (m.empty ? html`<p class="warn">No event can match it.</p>` : m.everything ? html`<p>Every event matches it.</p>` : html`<p class="dim">An event matches if it lies in ${m.boxes.length + m.more === 1 ? "this box" : `one of these ${count(m.boxes.length + m.more)} boxes`}.</p>${m.boxes.map((box, i) => html`<ul class="plain box" aria-label=${`Box ${i + 1}`}>${box.map(c => html`<li><code>${shown(c.condition)}</code></li>`)}</ul>`)}${m.more > 0 && html`<p class="dim">and ${count(m.more)} more</p>`}`)}</section>
    <section><h2>Lint</h2>${m && (m.lint.length ? html`<ul class="findings">${m.lint.map(l => html`<li>${shown(l.text)} <span class="tag">${shown(l.kind)}</span></li>`)}</ul>` : html`<p><${State} kind="good">No likely mistake was found.<//></p>`)}${m && html`<p class="dim">${m.linted ? `Compared with the ${plural(m.linted, "newest event")}.` : "No events may be read, or none are stored: names and types are not compared with events."}</p>`}</section></div>
    <h2>Matched in the last hour</h2><${Hour} filter=${filter} caption="Events of the last hour that match" first=${first}/><p><${Link} to=${"/events" + query({where: filter})}>All of them, and the live tail<//></p>
    <h2>Subscriptions</h2><${Related} filter=${filter}/>
    <h2>Compare with another filter</h2><${Compare} filter=${filter}/>`;
}

export default function Filters() {
  const [where, set] = useParam("where"), [session] = useParam("session"), [number] = useParam("number"), [known, know] = useState(null);
  return html`<h1>Workbench</h1><${FilterBox} value=${where} onInput=${set} known=${know}/>
    ${known ? html`<${Known} key=${session + number} filter=${known.filter} first=${known.attributes} session=${session} number=${number}/>` : !where.trim() && html`<${Empty} title="Type a filter to see what it means"><button onClick=${() => set("magnitude >= 5 AND place LIKE 'Chi%'")}>Use an example</button><//>`}`;
}
