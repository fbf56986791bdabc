// What the pages of the group Understand share: where filters come from, steps back and forth, badges.
import {html, plural, shown, useEffect, useParam, useRef, useState} from "./lib.js";
import {Empty, State} from "./parts.js";

/** A number in the address, with its box. */
export function Num({param, label, fallback, min = 0, max, step}) {
  const [value, set] = useParam(param, String(fallback));
  return html`<label class="field">${label}<input type="number" min=${min} max=${max} step=${step} value=${value} onChange=${e => { const n = Number(e.target.value); if (e.target.value !== "" && n >= min && n <= max) set(String(n)); else e.target.value = value; }}/></label>`;
}
/** One of several: options are [value, text] or texts. */
export const Choice = ({label, value, set, options}) => html`<label class="field">${label}<select value=${value} onChange=${e => set(e.target.value)}>${options.map(o => { const [v, t] = Array.isArray(o) ? o : [o, o]; return html`<option value=${v} selected=${String(v) === String(value)}>${shown(t)}</option>`; })}</select></label>`;
export function Pick({param, fallback = "", ...more}) {
  const [value, set] = useParam(param, fallback);
  return html`<${Choice} value=${value} set=${set} ...${more}/>`;
}
/** What to say where nothing is. */
export const none = (title, text) => html`<${Empty} title=${title}>${text}<//>`;
/** Columns of numbers, and of filters. */
export const num = (key, label, more) => ({key, label, number: true, ...more}), filters = (label = "Filter", key = "filter") => ({key, label, class: "wide mono"});
export function Tick({param, label}) {
  const [value, set] = useParam(param);
  return html`<label class="check"><input type="checkbox" checked=${value === "1"} onChange=${e => set(e.target.checked ? "1" : "")}/>${label}</label>`;
}

const SHAPES = {"2d": [2, 2, 2], "3d": [3, 3, 3], "1-3": [3, 1, 3]};
const PREDICATES = ["<", ">", "<=", ">=", "=", "!=", "[a,b]"];
/** The generator of the thesis: [generator, controls]. `own` replaces the control of filters. */
export function useGenerator({filters = 40, own} = {}) {
  const number = (name, fallback) => { const [v] = useParam(name, String(fallback)); return Number(v); };
  const [preds, setPreds] = useParam("predicates", "[a,b]"), [names, setNames] = useParam("names", "2"), [least, setLeast] = useParam("least", "2"), [most, setMost] = useParam("most", "2");
  const chosen = PREDICATES.filter(p => preds.split(" ").includes(p));
  const generator = {filters: number("n", filters), seed: number("seed", 1), names: +names, least: +least, most: +most, top: number("top", 100), predicates: chosen, interfaces: number("interfaces", 3), notifications: number("events", 50)};
  if (own) generator.filters = 0;
  const shape = Object.keys(SHAPES).find(k => SHAPES[k].join() === [names, least, most].join()) ?? "";
  const choose = key => { const [a, b, c] = SHAPES[key].map(String); setNames(a); setLeast(b); setMost(c); };
  const toggle = p => { const next = chosen.includes(p) ? chosen.filter(q => q !== p) : [...chosen, p]; if (next.length) setPreds(PREDICATES.filter(q => next.includes(q)).join(" ")); };
  const controls = html`${own ?? html`<${Num} param="n" label="Filters" fallback=${filters} max="2000"/>`}
    <${Choice} label="Schema" value=${shape} set=${k => k && choose(k)} options=${[...Object.keys(SHAPES), ...(shape ? [] : [["", "other"]])]}/>
    <${Num} param="seed" label="Seed" fallback="1" max="2147483647"/>
    <details class="more"><summary>More</summary><div class="controls"><${Num} param="names" label="Names" fallback="2" min="1" max="8"/><${Num} param="least" label="Attributes from" fallback="2" min="1" max=${names}/><${Num} param="most" label="to" fallback="2" min=${least} max=${names}/><${Num} param="top" label="Values up to" fallback="100" min="1" max="1000000"/>
      <${Num} param="interfaces" label="Interfaces" fallback="3" min="1" max="40"/><${Num} param="events" label="Notifications" fallback="50" max="500"/><fieldset><legend>Predicates</legend>${PREDICATES.map(p => html`<label class="check"><input type="checkbox" checked=${chosen.includes(p)} onChange=${() => toggle(p)}/><code>${p}</code></label>`)}</fieldset></div></details>`;
  return [generator, controls];
}

/** Filters that are generated, typed, from a file or live, with edits and a step. */
export function useSource(defaults = {}) {
  const [from, setFrom] = useParam("from", "generated"), [rules, setRules] = useParam("rules"), [edits, setEdits] = useParam("edits"), [step, setStep] = useParam("step");
  const [generator, generated] = useGenerator(defaults), [text, type] = useState(rules), [tooLong, warn] = useState(false);
  const take = value => { type(value); warn(value.length > 6000); setRules(value.length > 6000 ? "" : value); setStep(""); };
  const file = async e => { const given = e.target.files[0]; if (given) take(await given.text()); };
  const source = {generator, rules: from === "rules" ? text || "# nothing" : "", edits: edits ? edits.split("\n") : [], step: step === "" ? null : Number(step)};
  const edit = line => { setEdits(edits ? edits + "\n" + line : line); setStep(""); };
  const controls = html`<${Pick} param="from" label="Filters from" fallback="generated" options=${[["generated", "the generator"], ["rules", "my rules"], ["live", "live subscriptions"]]}/>${from === "generated" && generated}
    ${from === "rules" && html`<label class="field wide">One filter a line; an interface and a tab may precede it<textarea rows="4" value=${text} spellcheck=${false} onChange=${e => take(e.target.value)} placeholder="x < 10"></textarea></label><label class="field">or a file<input type="file" accept=".txt,.csv,text/plain" onChange=${file}/></label>${tooLong && html`<p class="warn">Too long for the address: these rules are gone when the page is loaded again.</p>`}`}`;
  return {source, live: from === "live", controls, edit, step, setStep, edits, undo: () => { setEdits(edits.split("\n").slice(0, -1).join("\n")); setStep(""); }};
}

/** Steps back and forth, a slider, and play. */
export function Steps({step, steps, set, last, speeds = false, marks = []}) {
  const [playing, play] = useState(false), [speed, setSpeed] = useState("1"), now = useRef(step);
  now.current = step;
  const to = n => set(String(Math.max(0, Math.min(steps, n))));
  useEffect(() => {
    if (!playing) return;
    const timer = setInterval(() => { if (now.current >= steps) play(false); else if (!document.hidden) to(now.current + Math.max(1, Math.round(speed / 4))); }, Math.max(90, 700 / speed));
    return () => clearInterval(timer);
  }, [playing, speed, steps]);
  return html`<div class="steps" role="group" aria-label="Steps"><button onClick=${() => to(0)} aria-label="First">|◀</button><button onClick=${() => to(step - 1)} disabled=${!step} aria-label="Back">◀</button>
    <button onClick=${() => play(!playing)} aria-pressed=${playing}>${playing ? "Pause" : "Play"}</button><button onClick=${() => to(step + 1)} disabled=${step >= steps} aria-label="Forward">▶</button><button onClick=${() => to(steps)} aria-label="Last">▶|</button>
    <label class="scrub"><span class="unseen">Step</span><input type="range" min="0" max=${steps} value=${step} onInput=${e => to(+e.target.value)}/>${marks.length ? html`<svg viewBox="0 0 1000 10" preserveAspectRatio="none" aria-hidden="true">${marks.map(([at, kind]) => html`<path class="mark ${kind}" d="M${1000 * at / Math.max(1, steps)} ${kind === "failed" ? 0 : 5}V10"/>`)}</svg>` : ""}</label>
    ${speeds && html`<${Choice} label="Speed" value=${speed} set=${setSpeed} options=${["1", "4", "16", "64"]}/>`}<span class="at">${`step ${step} of ${steps}`}</span></div>${last !== undefined && html`<p class="readout">${last ? shown(last) : "nothing yet"}</p>`}`;
}

/** Checks that were made anew for what is shown. */
export const Badges = ({checks}) => html`<ul class="badges" aria-label="Checks">${checks.map(c => html`<li class=${c.holds === false ? "broken" : ""} title=${shown(c.found)}><${State} kind=${c.holds ? "good" : c.holds === null ? "idle" : "bad"}>${c.name}${c.holds === false ? html`: ${shown(c.found)}` : c.holds === null ? " (not checked)" : ""}<//></li>`)}</ul>`;
export const percent = x => x === null || x === undefined ? "–" : `${(100 * x).toFixed(x && Math.abs(x) < 0.1 ? 2 : 1)}%`;
export const some = (list, most = 12) => list.length > most ? `${list.slice(0, most).join(", ")} and ${plural(list.length - most, "other")}` : list.join(", ");
