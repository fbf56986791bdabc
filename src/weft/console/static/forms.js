// Boxes to type filters and events in: errors with a caret while one types, in space that is reserved.
import {html, shown, useApi, useEffect, useRef, useSettled} from "./lib.js";
import {Trouble} from "./parts.js";

/** A filter that is checked 200 ms after the last key. `known` gets {filter, attributes, lint, ...} or null. */
export function FilterBox({value, onInput, label = "Filter", placeholder = "magnitude >= 5 AND place LIKE 'Chi%'", known, rows = 2, optional = false, autofocus}) {
  const settled = useSettled(value);
  const {data, error, loading} = useApi(settled.trim() ? "/filters/check" : null, {filter: settled});
  const box = useRef();
  const current = settled === value && !loading && !error ? data : null;
  useEffect(() => { known?.(settled.trim() ? current : null, settled); }, [current, settled]);
  useEffect(() => { if (autofocus) box.current.focus(); }, []);
  const id = "filter-" + label.replace(/\W+/g, "-").toLowerCase();
  return html`<div class="filterbox"><label for=${id}>${label}</label><textarea id=${id} ref=${box} rows=${rows} value=${value} placeholder=${placeholder} spellcheck=${false} autocomplete="off" autocapitalize="off" aria-describedby=${id + "-says"} aria-invalid=${!!error && value.trim() !== ""} onInput=${e => onInput(e.target.value)}></textarea>
    <div id=${id + "-says"} class="says">${error && value.trim() ? html`<${Trouble} error=${error}/>` : !value.trim() ? html`<p class="dim">${optional ? "Empty: every event." : "Type a filter: names of attributes, comparisons, AND, OR, NOT."}</p>`
      : data ? html`<p class="canonical"><span class="dim">Weft reads it as </span><code>${shown(data.filter)}</code></p>${data.empty && html`<p class="warn">No event can match this filter.</p>`}` : html`<p>\u00a0</p>`}</div></div>`;
}

const TRUTH = {true: ["+", "true", "good"], false: ["\u2212", "false", "bad"], null: ["?", "unknown", "warn"]};
/** Each part of a filter with its truth for an event. */
export function TraceTree({part}) {
  const [sign, word, kind] = TRUTH[String(part.truth)];
  const values = Object.entries(part.values || {});
  return html`<ul class="trace"><li><span class="truth ${kind}" aria-hidden="true">${sign}</span> <code>${shown(part.filter)}</code> <span class="dim">is ${word}${values.length ? ": " + values.map(([n, v]) => `${shown(n)} is ${v === null ? "absent" : shown(JSON.stringify(v))}`).join(", ") : ""}</span>
    ${(part.parts || []).map(each => html`<${TraceTree} part=${each}/>`)}</li></ul>`;
}

/** Attributes of an event as a list of names and values. */
export const Attributes = ({of}) => html`<dl class="attributes">${Object.entries(of).map(([name, value]) => html`<div><dt>${shown(name)}</dt><dd>${typeof value === "string" ? shown(value) : shown(JSON.stringify(value))}</dd></div>`)}</dl>`;
