// A ring, live or recorded: nodes on a circle, fingers, load, groups.
import {html, count, plural, query, shown, useApi, useEffect, useParam} from "../lib.js";
import {Empty, Fact, Picture, Table, Trouble} from "../parts.js";
import {Canvas} from "../canvas.js";
import {Choice, Steps, filters, none, num, percent, some} from "../lab.js";

const LIVE = "live ring";
function Circle({data, node, choose, topic}) {
  const at = new Map(data.nodes.map(n => [n.name, n.at])), most = Math.max(1, data.largest), known = data.chosen;
  const key = name => e => { if (e.key === "Enter" || e.key === " ") { e.preventDefault(); choose(name); } };
  const far = n => { const [x, y] = n.at, k = 1 + 70 * n.load / most / 440; return [500 + (x - 500) * k, 500 + (y - 500) * k]; };
  return html`<${Canvas} width=${1080} height=${1080} label="The ring" className="tall">${({scale}) => html`<g transform="translate(40 40)"><circle class="domain" cx="500" cy="500" r="440"/>
    ${known && known.fingers.map(f => at.has(f) && html`<path class="line on" d="M${known.at}Q500 500 ${at.get(f)}"/>`)}
    ${data.nodes.map(n => html`<g class="node broker ${n.state === "serving" ? "" : "bad"} ${n.name === node ? "chosen" : ""} ${topic && n.topics.includes(topic) ? "lit" : ""}" role="button" tabindex="0" aria-label=${shown(`${n.name}: ${n.state}, ${plural(n.load, "record")}, ${percent(n.share)} of the circle`)} onClick=${() => choose(n.name)} onKeyDown=${key(n.name)}><path class="load" d="M${n.at}L${far(n)}"/><circle class="dot" cx=${n.at[0]} cy=${n.at[1]} r=${Math.min(16, 7 / Math.min(1, scale))}/>${data.nodes.length <= 40 || n.name === node ? html`<text x=${500 + (n.at[0] - 500) * 0.88} y=${500 + (n.at[1] - 500) * 0.88 + 4} text-anchor="middle" font-size=${11 / Math.min(1, scale)}>${shown(n.name)}</text>` : ""}</g>`)}</g>`}<//>`;
}

export default function Ring() {
  const list = useApi("/runs"), rings = (list.data?.runs ?? []).filter(r => r.kind === "ring").map(r => r.name);
  const [chosen, setRun] = useParam("run"), [step, setStep] = useParam("step"), [node, choose] = useParam("node"), [topic, setTopic] = useParam("topic");
  const now = useApi("/ring/live" + query({node})), live = !!now.data?.nodes, run = chosen || (live ? LIVE : rings[0] ?? "");
  const played = useApi(run && run !== LIVE ? "/ring" : null, {run, step: step === "" ? null : +step, node, topic});
  const {data, error} = run === LIVE ? {data: live ? now.data : null, error: now.error} : played;
  useEffect(() => { if (run !== LIVE) return; const timer = setInterval(() => document.hidden || now.reload(), 3000); return () => clearInterval(timer); }, [run]);
  return html`<h1>Ring</h1><p>Nodes answer for the keys before them on the circle. A bar outwards is what a node stores.</p><${Trouble} error=${error || list.error || (run ? null : now.error)} lines="2"/>
    ${list.data && now.data && !live && !rings.length ? html`<${Empty} title="There is no ring" command=${list.data.record}>For a live one, set gateway.ring to a node, or run weft gateway --ring HOST:PORT. Or record one where the gateway was started:<//>` : ""}
    ${data && html`<div class="controls"><${Choice} label="Ring" value=${run} set=${v => { setRun(v); setStep(""); choose(""); }} options=${[...(live ? [LIVE] : []), ...rings]}/>${data.topics.length ? html`<${Choice} label="Group of topic" value=${topic} set=${setTopic} options=${[["", "none"], ...data.topics]}/>` : ""}</div>
      ${run === LIVE ? html`<p class="readout">${shown(data.title) || "all nodes answer"}</p>` : html`<${Steps} step=${data.step} steps=${data.steps} set=${setStep} speeds=${true} last=${data.title}/>`}
      <dl class="facts"><${Fact} label="Nodes">${count(data.nodes.length)}<//><${Fact} label="Records, at most">${count(data.largest)}<//><${Fact} label="Records, mean">${data.mean.toFixed(1)}<//><${Fact} label="Gini coefficient">${data.gini.toFixed(2)}<//></dl>
      ${data.nodes.length ? html`<${Picture} label="of the ring" table=${html`<${Table} name="ring" caption="Nodes of the ring" rows=${data.nodes} rowKey=${r => r.name} columns=${[{key: "name", label: "Node", show: r => html`<button onClick=${() => choose(r.name)}>${shown(r.name)}</button>`}, num("id", "Identifier"), {key: "state", label: "State"}, num("share", "Share of the circle", {show: r => percent(r.share)}), num("load", "Records"), num("fingers", "Fingers", {value: r => r.fingers.length}), {label: "Topics", value: r => some(r.topics)}]}/>`}><${Circle} data=${data} node=${node} choose=${choose} topic=${topic}/><//>` : none("No node has started yet", "Step forward.")}
      <h2>${data.chosen ? shown(data.chosen.name) : "A node"}</h2>${data.chosen ? html`<p>${shown(data.chosen.state)}; answers for keys ${data.chosen.after === undefined ? "" : `after ${data.chosen.after} `}up to ${data.chosen.id}, ${percent(data.chosen.share)} of the circle. ${data.chosen.facts ? "Successors" : "Fingers"}: ${shown(some(data.chosen.fingers)) || "none"}.${data.chosen.successors.length ? ` Successors: ${shown(some(data.chosen.successors))}.` : ""}${data.chosen.topics.length ? ` Groups: ${shown(some(data.chosen.topics))}.` : ""}</p>
        ${data.chosen.facts ? html`<dl class="facts">${Object.entries(data.chosen.facts).map(([k, v]) => html`<${Fact} label=${k}>${typeof v === "number" ? count(v) : shown(v)}<//>`)}</dl>` : html`<${Table} name="records" caption=${`Records of ${data.chosen.name}`} rows=${data.chosen.records} columns=${[num("number", "#"), filters("Record", "record")]} empty=${none("It stores nothing at this step")}/>`}` : none("No node chosen", "Choose one in the picture: its fingers, keys and records are shown here.")}`}`;
}
