// One broker: the covering order of its own subscriptions, a table per link, its index.
import {html, api, bytes, count, plural, query, segment, shown, span, useApi, useParam, useState, Link} from "../lib.js";
import {Empty, Fact, Sure, Table, Trouble} from "../parts.js";
import {brokerColumns, linkColumns, useList} from "../lists.js";

function Node({broker, node}) {
  const [open, toggle] = useState(false);
  return html`<li><button class="twist" aria-expanded=${open} disabled=${!node.children} onClick=${() => toggle(!open)} aria-label=${`${node.children ? plural(node.children, "filter") : "nothing"} below ${shown(node.filter)}`}>${node.children ? open ? "\u25be" : "\u25b8" : "\u00b7"}</button>
    <${Link} to=${"/filters" + query({where: node.filter})}><code>${shown(node.filter)}</code><//> <span class="dim">${plural(node.holders, "subscription")}${node.size > 1 ? `, ${plural(node.size - 1, "filter")} below` : ""}</span>${open && html`<${Level} broker=${broker} node=${node.node}/>`}</li>`;
}
export function Level({broker, node}) {
  const list = useList("/brokers/order", {broker, node: node ?? ""});
  return html`<${Trouble} error=${list.error}/><ul class="tree">${list.rows.map(each => html`<${Node} key=${each.node} broker=${broker} node=${each}/>`)}${list.more && html`<li><button onClick=${list.more}>More filters</button></li>`}</ul>
    ${!list.loading && !list.error && !list.rows.length && node === undefined && html`<${Empty} title="No client of this broker subscribes to anything" command="weft sub 'magnitude >= 5'">Subscribe, and the filter appears here.<//>`}`;
}
function LinkTable({broker, link}) {
  const [way, set] = useParam("way", "sent");
  const list = useList("/brokers/items", {broker, link, direction: way});
  return html`<div class="controls"><button aria-pressed=${way === "sent"} onClick=${() => set("sent")}>Sent to ${shown(link)}</button><button aria-pressed=${way === "received"} onClick=${() => set("received")}>Received from ${shown(link)}</button></div><${Trouble} error=${list.error}/>
    <${Table} name=${`items-${way}`} caption=${`Items ${way === "sent" ? "sent to" : "received from"} ${shown(link)}`} rows=${list.rows} total=${list.total} more=${list.more} loading=${list.loading} empty=${html`<${Empty} title=${way === "sent" ? "Nothing was sent to this neighbour" : "This neighbour has sent nothing"}>${way === "sent" ? "No client here, and no other neighbour, wants events that it could send." : "No client behind it subscribes to anything."}<//>`} columns=${[
      {label: "Item", key: "text", class: "wide", show: r => html`<code>${shown(r.text)}</code>`}, ...(way === "sent" ? [{label: "Why it was sent", key: "reason"}] : []), {label: "Hash", key: "hash", class: "tight", show: r => html`<code>${r.hash}</code>`}]}/>`;
}

export default function Brokers({rest}) {
  const list = useApi(rest.length ? null : "/overview");
  const [name = ""] = rest, {data, error, reload} = useApi(rest.length ? "/brokers" + query({name}) : null);
  const [link, choose] = useParam("link");
  if (!rest.length) return html`<h1>Brokers</h1><${Trouble} error=${list.error}/>${list.data && html`<${Table} name="brokers" caption="Brokers" rows=${list.data.brokers} columns=${brokerColumns}/>`}`;
  if (!data) return html`<h1>Broker ${shown(name)}</h1><${Trouble} error=${error}/>`;
  const b = data.broker, s = data.status, d = s?.driver || {};
  const at = link || b.links[0]?.peer || "";
  return html`<h1>Broker ${shown(b.name || "without a name")}</h1>${b.problem && html`<p class="bad">${shown(b.problem)}</p>`}
    <dl class="facts"><${Fact} label="Subscriptions">${count(b.subscriptions)}<//><${Fact} label="Sessions">${count(b.sessions)}<//><${Fact} label="Connections">${count(b.connections)}<//><${Fact} label="Events stored">${count(b.end - b.first)}<//>${s && html`<${Fact} label="Log">${bytes(d["log bytes"] || 0)}<//><${Fact} label="Up for">${span(Math.round(d.uptime / 1e6))}<//><${Fact} label="Starts">${count(s.incarnation)}<//>`}</dl>
    <h2>1. Covering order of its own subscriptions</h2><p class="dim">A filter stands below one that covers it. Only the roots are sent to neighbours.</p><${Level} broker=${b.name}/>
    <h2>2. A table per link</h2>${b.links.length ? html`<${Table} name="links" caption="Links" rows=${b.links} columns=${[{label: "Neighbour", key: "peer", show: l => html`<button aria-pressed=${l.peer === at} onClick=${() => choose(l.peer)}>${shown(l.peer)}</button>`}, ...linkColumns, {label: "", value: () => "", show: l => html`<${Sure} question=${`End ${shown(l.peer)} for good?`} label=${`Detach ${shown(l.peer)}`} act=${async () => { await api("/brokers/detach", {link: l.peer, broker: b.name}); reload(); }}>Detach<//>`}]}/><${LinkTable} key=${at} broker=${b.name} link=${at}/>` : html`<${Empty} title="This broker has no neighbours" command="weft serve --name north --link weft://south.example">One broker needs no links. With links, this is where you see what each neighbour was sent, and why.<//>`}
    <h2>3. Index and settings</h2><dl class="facts"><${Fact} label="Filters in the index">${count(b.subscriptions)}<//><${Fact} label="Routing model">${shown(b.model)}<//>${s && html`<${Fact} label="Queues">${count(s.queues)}<//><${Fact} label="Commits">${count(d.commits)}<//><${Fact} label="Received">${bytes(d["bytes received"] || 0)}<//><${Fact} label="Sent">${bytes(d["bytes sent"] || 0)}<//>`}</dl>
    ${s && html`<p class="dim">Listens on ${shown((d.addresses || []).join(", "))}. Log ${shown(s.log_id)}, process ${d.process}.</p><details><summary>All counters</summary><${Table} name="counters" caption="Counters" rows=${Object.entries({...s.counts, ...(d.counts || {})})} columns=${[{label: "Counter", value: r => r[0]}, {label: "Times", value: r => r[1], number: true}]}/></details>`}
    ${!s && html`<p class="dim">This gateway is connected to another broker, so counters and settings of this one are not shown.</p>`}`;
}
