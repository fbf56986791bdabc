// Why a subscription gets nothing, or less than expected.
import {html, go, query, segment, shown, useApi, useState, Link} from "../lib.js";
import {Empty, Table, Trouble} from "../parts.js";
import {subscriptionColumns} from "../lists.js";

export default function Why({rest}) {
  const [session = "", number = ""] = rest, [typed, type] = useState(session);
  const {data, error, loading, reload} = useApi(session ? "/why" + query({session, number}) : null);
  const ask = e => { e.preventDefault(); if (typed === session) reload(); else go("/why/" + segment(typed)); };
  return html`<h1>Why does it get nothing?</h1><form class="controls" onSubmit=${ask}><label class="field"><span>Session, or name of a subscription</span><input value=${typed} onInput=${e => type(e.target.value)} placeholder="alerts"/></label><button class="main" disabled=${!typed.trim() || loading}>Ask</button></form><${Trouble} error=${error} lines="2"/>
    ${!session ? html`<${Empty} title="Name a subscription">Its broker checks everything that can keep events from it, asks all other brokers, and says what to do. <${Link} to="/subscriptions">All subscriptions<//><//>` : data && html`${data.healthy ? html`<ul class="alarms calm"><li>Nothing is wrong: it gets every event that matches.</li></ul>` : html`<ul class="findings">${data.findings.map(f => html`<li><p>${shown(f.fact)} <span class="tag">${shown(f.cause)}</span></p>${f.evidence && html`<p class="dim">${shown(f.evidence)}</p>`}<p class="advice">${shown(f.advice)}</p></li>`)}</ul>`}
    <h2>Subscriptions</h2><${Table} name="subscriptions" caption="Subscriptions" rows=${data.subscriptions} columns=${subscriptionColumns.slice(0, 7)} empty=${html`<${Empty} title="There is no such subscription"><${Link} to="/subscriptions">All subscriptions<//><//>`}/>`}`;
}
