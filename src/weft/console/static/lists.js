// Lists that come in pages, and tables that several pages show.
import {html, api, query, rate, segment, shown, useEffect, useRef, useState, Link, Time} from "./lib.js";
import {State} from "./parts.js";

/** The rows of a list: {rows, total, seen, more, loading, error, reload}. `more` is null at the end. */
export function useList(path, params) {
  const key = path + query(params);
  const [state, set] = useState({rows: [], page: "", loading: true, error: null, of: null});
  const [again, setAgain] = useState(0), stop = useRef();
  const load = async (page, before) => {
    stop.current?.abort();
    const mine = stop.current = new AbortController();
    set(old => ({...old, loading: true}));
    try {
      const found = await api(path + query({...params, page}), undefined, mine.signal);
      if (!mine.signal.aborted) set({...found, rows: [...before, ...found.rows], loading: false, error: null, of: key});
    } catch (error) { if (!mine.signal.aborted) set(old => ({...old, rows: before, loading: false, error, of: key})); }
  };
  useEffect(() => { load("", []); return () => stop.current?.abort(); }, [key, again]);
  return {...state, more: state.page && !state.error ? () => load(state.page, state.rows) : null, reload: () => setAgain(n => n + 1)};
}

export const sessionLink = name => name ? html`<${Link} to=${"/sessions/" + segment(name)}>${shown(name)}<//>` : html`<span class="dim">no name</span>`;
/** Columns of tables of subscriptions. */
export const subscriptionColumns = [
  {label: "Session", value: r => r.share || r.session, show: r => r.share ? html`${shown(r.share)} <span class="tag">shared</span>` : sessionLink(r.session)},
  {label: "No.", key: "number", number: true},
  {label: "Filter", key: "filter", class: "wide", show: r => html`<${Link} to=${"/filters" + query({where: r.filter, session: r.session, number: r.session ? r.number : ""})}><code>${shown(r.filter)}</code><//>`},
  {label: "Matched", key: "matched", number: true},
  {label: "Last match", key: "matched_at", class: "tight", show: r => html`<${Time} at=${r.matched_at}/>`},
  {label: "Behind", key: "behind", number: true},
  {label: "Reader", value: r => r.connected ? "connected" : "away", show: r => html`<${State} kind=${r.connected ? "good" : "idle"}>${r.connected ? "connected" : "away"}<//>`},
  {label: "", value: () => "", show: r => r.session ? html`<${Link} to=${`/why/${segment(r.session)}/${r.number}`}>why?<span class="unseen"> subscription ${r.number} of ${shown(r.session)}</span><//>` : null},
];
export const named = name => name || "this broker";
/** Columns of tables of brokers, and of links. */
export const brokerColumns = [
  {label: "Broker", value: b => named(b.name), show: b => html`<${Link} to=${"/brokers/" + segment(b.name)}>${shown(named(b.name))}<//>`},
  {label: "State", value: b => b.problem || "answers", show: b => html`<${State} kind=${b.problem ? "bad" : "good"}>${shown(b.problem || "answers")}<//>`},
  {label: "Subscriptions", key: "subscriptions", number: true}, {label: "Sessions", key: "sessions", number: true}, {label: "Connections", key: "connections", number: true}, {label: "Events stored", key: "stored", number: true},
  {label: "Stored per second", key: "rate", number: true, show: b => rate(b.rate)}, {label: "Model", key: "model"},
];
const linkState = l => !l.connected ? "down" : l.synced ? "up" : "not synchronised";
export const linkColumns = [
  {label: "Role", key: "role"}, {label: "State", value: linkState, show: l => html`<${State} kind=${{down: "bad", up: "good"}[linkState(l)] || "warn"}>${linkState(l)}<//>`},
  {label: "Events behind", key: "lag", number: true}, {label: "Why it was down last", key: "reason"},
];
