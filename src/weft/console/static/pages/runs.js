// The player of recorded simulations.
import {html, bytes, count, plural, shown, useApi, useParam, Link, segment} from "../lib.js";
import {Empty, Fact, Picture, State, Table, Trouble} from "../parts.js";
import {Canvas} from "../canvas.js";
import {Choice, Steps, Tick, filters, none, num} from "../lab.js";

const time = us => us >= 1e7 ? `${(us / 1e6).toFixed(2)} s` : `${(us / 1000).toFixed(3)} ms`;

const timed = run => run.meta.kind !== "overlay"; // its steps have no times
function List() {
  const {data, error} = useApi("/runs");
  return html`<h1>Runs</h1><p>Simulations that were recorded with <code>--record</code>, to be played step by step.</p><${Trouble} error=${error}/>
    ${data && html`<${Table} name="runs" caption="Recorded runs" rows=${data.runs} rowKey=${r => r.name} columns=${[{key: "name", label: "Run", show: r => r.problem ? shown(r.name) : html`<${Link} to=${"/runs/" + segment(r.name)}>${shown(r.name)}<//>`}, {key: "kind", label: "Simulator"}, {key: "protocol", label: "Protocol, model or design"}, {key: "topology", label: "Of", class: "wide"}, num("steps", "Steps"), num("bytes", "Size", {show: r => bytes(r.bytes)}), {key: "problem", label: "", show: r => r.problem ? html`<${State} kind="bad">${shown(r.problem)}<//>` : ""}]}
      empty=${html`<${Empty} title=${`There are no recordings in ${shown(data.folder)}`} command=${data.record}>Record some where the gateway was started, or set <code>gateway.runs</code>:<//>`}/>`}`;
}

function Network({of, broker, open, follow}) {
  const {nodes, links, messages, ring} = of, xs = nodes.map(n => n.at[0]), ys = nodes.map(n => n.at[1]);
  if (!nodes.length) return none("Nothing has started yet", "Step forward.");
  const x0 = Math.min(...xs) - 60, y0 = Math.min(...ys) - 50, w = Math.max(...xs) - x0 + 70, h = Math.max(...ys) - y0 + 60, P = i => [nodes[i].at[0] - x0, nodes[i].at[1] - y0];
  const dense = nodes.length > 40, r = dense ? 9 : 17;
  const key = i => e => { if (e.key === "Enter" || e.key === " ") { e.preventDefault(); open(nodes[i].name); } };
  return html`<${Canvas} width=${w} height=${h} label=${ring ? "The ring" : "Brokers and links"} className="tall">${({scale}) => html`
    <g>${links.map(l => { const [a, b] = [P(l.a), P(l.b)]; return html`<path class="line ${l.state === "up" ? "" : l.state === "syncing" ? "cold" : "down"} ${l.tree ? "" : "spare"}" d="M${a}L${b}"><title>${shown(`${nodes[l.a].name} – ${nodes[l.b].name}: ${l.state}`)}</title></path>`; })}</g>
    <g>${messages.map(([a, b, kind]) => { const [p, q] = [P(a), P(b)], m = [(p[0] + q[0]) / 2, (p[1] + q[1]) / 2], turn = Math.atan2(q[1] - p[1], q[0] - p[0]) * 180 / Math.PI; return html`<g class="message"><path class="line lit" d="M${p}L${q}"/><path d="M-7 -6L7 0L-7 6Z" transform=${`translate(${m}) rotate(${turn})`}/><text x=${m[0]} y=${m[1] - 9} text-anchor="middle" font-size=${12 / Math.min(1, scale)}>${shown(kind)}</text></g>`; })}</g>
    <g>${nodes.map((n, i) => { const [x, y] = P(i); return html`<g class="node broker ${n.state === "down" ? "bad" : ""} ${n.name === broker || n.name === follow ? "chosen" : ""}" role="button" tabindex="0" aria-label=${shown(`${n.name}: ${n.state}, ${plural(n.clients, "client")}, ${plural(n.subscriptions + n.local, "subscription")}, ${plural(n.adverts, "advertisement")}`)} onClick=${() => open(n.name)} onKeyDown=${key(i)}>
      <rect x=${x - r} y=${y - r} width=${2 * r} height=${2 * r} rx=${ring || dense ? r : 5}/><text x=${x} y=${dense ? y - r - 3 : y + 4} text-anchor="middle" font-size=${(dense ? 9 : 11) / Math.min(1, scale * 1.1)}>${shown(n.name)}</text>
      ${n.streams || n.clients ? html`<circle class="stream" cx=${x + r} cy=${y - r} r=${dense ? 4 : 6}><title>${plural(n.streams, "connected stream")}, ${plural(n.clients, "client")}</title></circle>` : ""}${n.adverts ? html`<rect class="advert" x=${x + r - 5} y=${y + r - 5} width="10" height="10"><title>${plural(n.adverts, "advertisement")}</title></rect>` : ""}</g>`; })}</g>`}<//>`;
}

const what = s => [s.phase, ...s.messages.map(m => `${m[0]} → ${m[1]}: ${m[2]}${m[3] ? " " + m[3] : ""}`), s.more ? `${s.more} more messages` : "", ...s.changes.map(c => `${c.table}: ${[c.add.length ? "+ " + c.add.join("; ") : "", c.drop ? `− ${c.drop}` : ""].filter(Boolean).join(" ")}`), ...Object.entries(s.streams).map(([c, at]) => `${c} is ${at < 0 ? "nowhere" : "at " + at}`), ...Object.entries(s.states).map(([n, v]) => `${n}: ${v ?? "gone"}`), ...Object.entries(s.assertions).map(([n, ok]) => `${n}: ${ok ? "holds" : "BROKEN"}`), ...s.notes].filter(Boolean).join(" · ") || "nothing changes";

function Run({of, broker, setBroker, follow, title}) {
  return html`<section class="panel" aria-label=${title}><h2>${title}</h2><p class="dim">${shown(of.meta.kind)}, ${shown(of.meta.protocol)}, ${shown(of.meta.topology)} · step ${count(of.step)} of ${count(of.steps)}${timed(of) ? `, ${time(of.at)} of ${time(of.last)}` : ""} ${of.failed ? html`<${State} kind="bad">${plural(of.failed, "broken assertion")}<//>` : html`<${State} kind="good">no broken assertion<//>`}</p>
    <dl class="facts" aria-label="The whole run">${Object.entries(of.figures).map(([k, v]) => html`<${Fact} label=${shown(k)}>${count(v)}<//>`)}</dl><${Picture} param=${"as" + title} label=${title} table=${html`<${Table} name="brokers" caption=${`Brokers of ${title}`} rows=${of.picture.nodes} rowKey=${r => r.name} columns=${[{key: "name", label: "Broker"}, {key: "state", label: "State"}, num("clients", "Clients"), num("local", "Own subscriptions"), num("subscriptions", "Subscriptions from neighbours"), num("adverts", "Advertisements"), num("streams", "Connected streams")]}/>`}><${Network} of=${of.picture} broker=${broker} open=${setBroker} follow=${follow}/><//></section>`;
}

function Player({name}) {
  const [step, setStep] = useParam("step", "1"), [other, setOther] = useParam("other"), [follow, setFollow] = useParam("follow"), [broker, setBroker] = useParam("broker"), [graph] = useParam("graph");
  const {data, error} = useApi("/runs/view", {one: {name, step: +step, follow, broker, graph: graph === "1"}, other});
  const list = useApi("/runs"), one = data?.one;
  const jump = n => n !== null && n !== undefined && setStep(String(n));
  return html`<p><${Link} to="/runs">All runs<//></p><h1>${shown(name)}</h1><${Trouble} error=${error} lines="2"/>
    ${one && html`<${Steps} step=${one.step} steps=${one.steps} set=${setStep} speeds=${true} marks=${one.marks} last=${one.now ? what(one.now) : ""}/>
      <div class="controls"><${Choice} label="Follow" value=${follow} set=${setFollow} options=${[["", "nobody"], ...one.names]}/><button disabled=${!follow || one.previous === null} onClick=${() => jump(one.previous)}>Its previous step</button><button disabled=${!follow || one.next === null} onClick=${() => jump(one.next)}>Its next step</button>
        <${Choice} label="Compare with" value=${other} set=${setOther} options=${[["", "no other run"], ...(list.data?.runs ?? []).filter(r => r.name !== name && !r.problem).map(r => r.name)]}/><${Tick} param="graph" label="All edges of the topology"/></div>
      ${one.marks.some(m => m[1] === "failed") && html`<ul class="alarms">${one.marks.filter(m => m[1] === "failed").slice(0, 10).map(m => html`<li class="error"><button onClick=${() => jump(m[0])}>Step ${m[0]}</button> broken: ${shown(m[2])}</li>`)}</ul>`}
      <p class="dim">A dark dot marks clients and connected streams, a grey square advertisements; arrows are the messages of this step.</p>
      <div class="panels ${data.other ? "" : "one"}"><${Run} of=${one} title=${shown(name)} broker=${broker} setBroker=${setBroker} follow=${follow}/>${data.other && html`<${Run} of=${data.other} title=${shown(other)} broker=${broker} setBroker=${setBroker} follow=${follow}/>`}</div>
      <div class="columns"><div><h2>${follow ? `Steps of ${shown(follow)}` : "Steps"}</h2><${Table} name="steps" caption="Steps" rows=${one.list} rowKey=${r => r.step} columns=${[num("step", "Step", {show: r => html`<button aria-current=${r.step === one.step ? "step" : undefined} onClick=${() => jump(r.step)}>${r.step}</button>`}), ...(timed(one) ? [num("at", "Time", {show: r => time(r.at)})] : []), {label: "What", class: "wide", value: what}]} empty=${none("Nothing happens")}/></div>
        <div><h2>Tables${broker ? ` of ${shown(broker)}` : ""}</h2>${broker ? one.tables.length ? one.tables.map(t => html`<h3>${shown(t.table)} <span class="dim">${plural(t.count, "item")}</span></h3><${Table} name="table" caption=${shown(t.table)} rows=${t.rows} columns=${[num("number", "#"), filters("Item", "item")]}/>`) : none("Its tables are empty at this step") : none("No broker chosen", "Choose one in the picture: its tables at this step are shown here.")}
          <h2>Messages of the whole run</h2><dl class="facts">${Object.entries(one.kinds).slice(0, 12).map(([k, n]) => html`<${Fact} label=${shown(k)}>${count(n)}<//>`)}</dl></div></div>`}`;
}

export default function Runs({rest}) { return rest[0] ? html`<${Player} key=${rest[0]} name=${rest[0]}/>` : html`<${List}/>`; }
