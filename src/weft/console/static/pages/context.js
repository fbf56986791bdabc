// Profiles and queries in two forests.
import {html, count, plural, shown, useApi, useParam, useState} from "../lib.js";
import {Fact, Picture, Table, Trouble} from "../parts.js";
import {Boxes} from "../canvas.js";
import {FilterBox} from "../forms.js";
import {Badges, Choice, Num, Pick, Steps, Tick, filters, none, some, useGenerator} from "../lab.js";

function Forest({of, title, letter, marked, choose, matches}) {
  const named = n => letter + n, chosen = of.nodes.findIndex(n => n.numbers.some(m => named(m) === marked));
  const nodes = of.nodes.map(n => ({...n, full: of.full, lines: n.numbers.length ? [n.numbers.map(named).join(", ")] : ["preloaded"], kind: n.kind + (n.numbers.some(m => matches.has(named(m))) ? " lit" : "")}));
  return html`<section class="panel" aria-label=${title}><h2>${title}</h2><p class="dim">${plural(of.total, "filter")}, ${plural(of.roots, "root")}, depth ${of.depth}</p>${nodes.length ? html`<${Boxes} picture=${of.picture} nodes=${nodes} row=${of.row} label=${title} chosen=${chosen < 0 ? null : chosen} choose=${i => nodes[i].numbers.length && choose(named(nodes[i].numbers[0]))} className="tall"/>` : none(`No ${title.toLowerCase()} yet`, "Step forward, or add one.")}</section>`;
}

export default function Context() {
  const sizes = html`<${Num} param="profiles" label="Profiles" fallback="20" max="400"/><${Num} param="queries" label="Queries" fallback="12" max="400"/>`;
  const [generator, controls] = useGenerator({own: sizes});
  const [profiles] = useParam("profiles", "20"), [queries] = useParam("queries", "12"), [meeting] = useParam("meeting", "covering"), [preload] = useParam("preload", "none"), [bounds] = useParam("bounds"), [edits, setEdits] = useParam("edits"), [step, setStep] = useParam("step"), [query, follow] = useParam("query"), [marked, mark] = useParam("mark");
  const [text, type] = useState(""), [known, know] = useState(null);
  const {data, error} = useApi("/context", {generator, profiles: +profiles, queries: +queries, overlap: meeting === "overlap", bounds: bounds !== "1", preload, edits: edits ? edits.split("\n") : [], step: step === "" ? null : +step, query});
  const edit = line => { setEdits(edits ? edits + "\n" + line : line); setStep(""); };
  const act = what => e => { e.preventDefault(); edit(`${what} ${known.filter}`); type(""); };
  const rows = data ? [...data.by_query, ...data.by_profile] : [], row = rows.find(r => r.name === marked), matches = new Set(row?.matches ?? []);
  const columns = [{key: "name", label: "Name", show: r => html`<button onClick=${() => mark(r.name)}>${r.name}</button>`}, filters(), {key: "matches", label: "Matches", value: r => r.matches.join(" "), show: r => r.matches.length ? some(r.matches, 20) : html`<span class="dim">none</span>`}];
  const joined = data?.collection.joined ?? [], left = data?.collection.left ?? [];
  return html`<h1>Context</h1><p>Profiles say where things are, queries what somebody wants to know of: two forests of filters, and the pairs that meet.</p>
    <div class="controls">${controls}<${Pick} param="meeting" label="They meet by" fallback="covering" options=${[["covering", "covering: the query covers the profile"], ["overlap", "overlap"]]}/><${Pick} param="preload" label="Preloaded" fallback="none" options=${[["none", "nothing"], ["right", "what will be added"], ["wrong", "other things"]]}/><${Tick} param="bounds" label="Without bounds"/></div><${Trouble} error=${error} lines="2"/>
    ${data && html`<${Steps} step=${data.step} steps=${data.steps} set=${setStep} last=${data.last}/><${Badges} checks=${data.checks}/>
      <dl class="facts"><${Fact} label="Comparisons of the last step">${count(data.cost.last)}<//><${Fact} label="of all steps">${count(data.cost.steps)}<//><${Fact} label="of preloading">${count(data.cost.preloading)}<//><${Fact} label="each with each">${count(data.cost.naive)}<//><${Fact} label="Pairs">${count(data.pairs)}<//></dl>
      <${Picture} label="of both forests" table=${html`<p class="dim">The tables below have everything.</p>`}><div class="panels"><${Forest} of=${data.queries} title="Queries" letter="Q" marked=${marked} choose=${mark} matches=${matches}/><${Forest} of=${data.profiles} title="Profiles" letter="P" marked=${marked} choose=${mark} matches=${matches}/></div><//>
      <p class="readout" role="status">${row ? `${row.name} ${shown(row.filter)} · meets ${row.matches.length ? some(row.matches, 40) : "nothing"}` : "Choose a box: what it meets is marked in the other forest."}</p>
      <form class="controls" onSubmit=${act("+P")}><div class="grow"><${FilterBox} value=${text} onInput=${type} label="A filter" placeholder="a BETWEEN 5 AND 9" known=${know} rows="1"/></div><button disabled=${!known || known.empty}>Add a profile</button><button type="button" disabled=${!known || known.empty} onClick=${act("+Q")}>Add a query</button><button type="button" disabled=${!known || known.empty || !row} onClick=${act(`=${marked}`)}>Move ${row ? marked : "the chosen one"} there</button><button type="button" disabled=${!row} onClick=${() => edit(`-${marked}`)}>End ${row ? marked : "the chosen one"}</button>${edits && html`<button type="button" onClick=${() => { setEdits(edits.split("\n").slice(0, -1).join("\n")); setStep(""); }}>Undo</button>`}</form>
      <h2>A collection</h2><div class="controls"><${Choice} label="Query" value=${data.collection.query} set=${follow} options=${data.by_query.map(r => r.name)}/></div>
      <p>${data.collection.query ? html`Everything that ${data.collection.query} admits: ${data.collection.members.length ? some(data.collection.members, 60) : "nothing yet"}.` : html`<span class="dim">Add a query, and its contents are followed here.</span>`}</p><p class="readout" role="status">${joined.length ? html`<span class="gain">+ ${some(joined)}</span> ` : ""}${left.length ? html`<span class="loss">− ${some(left)}</span> ` : ""}${data.collection.why ? `because ${data.collection.why}` : "The last step changed nothing here."}</p>
      <div class="columns"><div><h2>By query</h2><${Table} name="queries" caption="Profiles of each query" rows=${data.by_query} columns=${columns} rowKey=${r => r.name} empty=${none("No queries yet")}/></div><div><h2>By profile</h2><${Table} name="profiles" caption="Queries of each profile" rows=${data.by_profile} columns=${columns} rowKey=${r => r.name} empty=${none("No profiles yet")}/></div></div>`}`;
}
