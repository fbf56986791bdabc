// Covering orders side by side, and the forest of the broker itself.
import {html, plural, shown, useApi, useParam, useState, Link} from "../lib.js";
import {Picture, Table, Trouble} from "../parts.js";
import {Level} from "./brokers.js";
import {Boxes} from "../canvas.js";
import {FilterBox} from "../forms.js";
import {Badges, Num, Steps, filters, none, num, percent, some, useSource} from "../lab.js";

const hash = list => list.map(n => "#" + n);
function Panel({name, of, mark, setMark, full, setFull, more}) {
  const chosen = of.nodes.findIndex(n => n.numbers.includes(mark));
  const nodes = of.nodes.map(n => ({...n, full: of.full}));
  return html`<section class="panel ${full === name ? "large" : ""}" aria-label=${of.title}><h2>${of.title} <span class="dim">${name}</span></h2>
    <p class="dim">${plural(of.total, "filter")}, ${plural(of.roots, "root")}, depth ${of.depth}, ${plural(of.edges, "edge")}${of.hidden ? html` · <button onClick=${more}>${plural(of.hidden, "more filter")}: show</button>` : ""} <button onClick=${() => setFull(full === name ? "" : name)} aria-pressed=${full === name} aria-label=${`${full === name ? "Shrink" : "Enlarge"} ${of.title}`}>${full === name ? "Shrink" : "Enlarge"}</button></p>
    ${nodes.length ? html`<${Boxes} picture=${of.picture} nodes=${nodes} row=${of.row} label=${`${of.title}, ${plural(nodes.length, "filter")}`} chosen=${chosen < 0 ? null : chosen} choose=${i => setMark(nodes[i].numbers[0])} open=${i => setMark(nodes[i].numbers[0])} className="tall"/>` : none("No filters yet", "Step forward, or add a filter.")}</section>`;
}

function Mergers({of, title, roots}) {
  if (!of) return html`<h3>${title}</h3><p class="dim">Volumes need attributes that are compared with numbers only.</p>`;
  return html`<h3>${title}</h3><p>${plural(roots, "root")} told as ${plural(of.count, "filter")}, ${plural(of.mergers, "merger")} among them; lets through ${percent(of.lets_through)} more.</p>
    <${Table} name="mergers" caption=${title} rows=${of.items} columns=${[filters("Told"), num("parts", "Made of", {value: r => r.parts.length}), num("added", "Adds", {show: r => percent(r.added)})]} empty=${none("Nothing to merge")}/>`;
}

function Lab() {
  const {source, live, controls, edit, setStep, edits, undo} = useSource();
  const [first, setFirst] = useParam("first", "300"), [full, setFull] = useParam("full"), [budget] = useParam("budget", "0.02"), [mark, setMark] = useParam("mark");
  const [text, type] = useState(""), [known, know] = useState(null), [face, setFace] = useState("I1");
  const {data, error, loading} = useApi("/orders", {live, request: {source, first: +first, full, budget: +budget}});
  const number = +mark || 0, marked = number && data && Object.values(data.panels).flatMap(p => p.nodes).find(n => n.numbers.includes(number));
  const add = e => { e.preventDefault(); edit(`+${face.trim().replaceAll(" ", "_") || "I1"} ${known.filter}`); type(""); };
  return html`<div class="controls">${controls}<${Num} param="budget" label="Added volume, at most" fallback="0.02" max="1" step="0.01"/></div><${Trouble} error=${error} lines="2"/>
    ${data && html`<${Steps} step=${data.step} steps=${data.steps} set=${setStep} last=${data.last}/>${data.notes.map(n => html`<p class="warn">${shown(n)}</p>`)}<${Badges} checks=${data.checks}/>
      <${Picture} label="of all structures" table=${html`<${Table} name="orders" caption="Filters in each structure" rows=${data.filters} rowKey=${r => r.number} columns=${[num("number", "#"), {key: "interface", label: "Interface"}, filters(), {label: "Root", value: r => data.cover.includes(r.number) ? "yes" : ""}]}/>`}>
        <div class="panels ${full ? "one" : ""}" aria-busy=${loading}>${Object.entries(data.panels).filter(([k]) => !full || k === full).map(([k, p]) => html`<${Panel} key=${k} name=${k} of=${p} mark=${number} setMark=${n => setMark(String(n))} full=${full} setFull=${setFull} more=${() => setFirst(String(+first + 300))}/>`)}</div><//>
      <p class="readout" role="status">${marked ? shown(`${marked.lines[0]}: ${marked.text}`) : data.filters.length ? "Choose a filter: it is marked in all structures." : "\u00a0"} ${marked && html`<button onClick=${() => { edit("-" + number); setMark(""); }}>Remove #${number}</button>`}</p>
      <form class="controls" onSubmit=${add}><div class="grow"><${FilterBox} value=${text} onInput=${type} label="Add a filter" placeholder="a BETWEEN 5 AND 9" known=${know} rows="1"/></div><label class="field">Interface<input value=${face} onInput=${e => setFace(e.target.value)} size="8"/></label><button class="main" disabled=${!known || known.empty}>Add</button>${edits && html`<button type="button" onClick=${undo}>Undo</button>`}</form>
      <h2>Minimal cover</h2><p>${plural(data.cover.length, "filter")} that no other one covers: ${some(hash(data.cover), 40)}</p>
      <h2>Forwards sets</h2><${Table} name="forwards" caption="What each neighbour is told" rows=${data.forwards} columns=${[{key: "neighbour", label: "Neighbour"}, ...["naive", "poset", "forest"].map(m => ({key: m, label: m[0].toUpperCase() + m.slice(1), value: r => r[m] === null ? "not computed" : r[m].length, show: r => r[m] === null ? "not computed" : html`${plural(r[m].length, "filter")} <span class="dim">${some(hash(r[m]))}</span>`})), {label: "Agree", value: r => r.equal ? "yes" : "NO", show: r => r.equal ? "yes" : html`<strong class="bad">no</strong>`}]} empty=${none("No neighbours yet", "Interfaces are neighbours: add a filter with one.")}/>
      <h2>Merging of the root set</h2><div class="columns"><div><${Mergers} of=${data.merging.perfect} title="Perfect" roots=${data.merging.roots}/></div><div><${Mergers} of=${data.merging.imperfect} title=${`Imperfect, up to ${percent(data.merging.budget)} of the domain`} roots=${data.merging.roots}/></div></div>`}`;
}

function Live() {
  const [broker] = useParam("broker");
  return html`<p>The covering order of the broker's own subscriptions, read level by level from its forest.</p><${Level} broker=${broker}/>`;
}

export default function Orders({rest}) {
  const live = rest[0] === "live";
  return html`<h1>Covering orders</h1><p class="tabs"><${Link} to="/orders" aria-current=${live ? undefined : "page"}>Four structures<//> <${Link} to="/orders/live" aria-current=${live ? "page" : undefined}>The broker's own forest<//></p>${live ? html`<${Live}/>` : html`<${Lab}/>`}`;
}
