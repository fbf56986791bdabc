// Sessions, and one of them with its subscriptions.
import {html, api, count, query, shown, useAddress, useApi, useLive, useParam, Link, segment} from "../lib.js";
import {Empty, Fact, Search, State, Sure, Table, Trouble} from "../parts.js";
import {sessionLink, subscriptionColumns, useList} from "../lists.js";

const state = r => html`<${State} kind=${r.connected ? "good" : "idle"}>${r.connected ? "connected" : "away"}<//>`;

function One({name}) {
  const [broker] = useParam("broker"), first = useApi("/sessions/one" + query({name, broker})), live = useLive(broker ? null : "session:" + name);
  const subs = useList("/subscriptions", {session: name, broker});
  const s = (live.data || first.data)?.session, error = first.error || (live.problem && {message: live.problem.detail, fields: live.problem});
  const rows = live.data && live.data.subscriptions.length >= subs.rows.length ? live.data.subscriptions : subs.rows;
  const act = (path, body) => async () => { await api(path, body); first.reload(); subs.reload(); };
  return html`<h1>Session ${shown(name)}</h1><${Trouble} error=${error}/>${s && html`<dl class="facts"><${Fact} label="State">${state(s)}<//><${Fact} label="Owner">${shown(s.owner || "\u2013")}<//><${Fact} label="Events behind">${count(s.behind)}<//><${Fact} label="Subscriptions">${count(s.subscriptions)}<//><${Fact} label="Queues">${count(s.queues)}<//><${Fact} label="Published">${count(s.published)}<//></dl>
    <p class="controls"><${Link} to=${"/why/" + segment(name)}>Why does it get nothing?<//> <${Link} to=${"/dead" + query({session: name})}>Dead letters<//>${s.connected && html`<${Sure} question="Close its connection? The client may come back." act=${act("/sessions/disconnect", {session: name, broker})}>Disconnect<//>`}</p>
    <h2>Subscriptions</h2><${Table} name="subscriptions" caption="Subscriptions" rows=${rows} more=${rows === subs.rows ? subs.more : null} loading=${subs.loading} rowKey=${r => r.number} empty=${html`<${Empty} title="It subscribes to nothing">A session without subscriptions publishes only.<//>`} columns=${[...subscriptionColumns.slice(1), {label: "", value: () => "", show: r => html`<${Sure} question="End it, with what waits for it?" label=${`End subscription ${r.number}`} act=${act("/subscriptions/change", {session: name, number: r.number, filter: null, broker})}>End<//>`}]}/>`}`;
}

export default function Sessions({rest}) {
  const {params} = useAddress(), [connected, set] = useParam("connected"), [broker] = useParam("broker");
  const list = useList("/sessions", {text: params.get("text") || "", connected, broker});
  if (rest[0]) return html`<${One} key=${rest[0]} name=${rest[0]}/>`;
  const filtered = params.get("text") || connected;
  return html`<h1>Sessions</h1><div class="controls"><${Search} label="Name contains" placeholder="alerts"/><label class="field"><span>State</span><select value=${connected} onChange=${e => set(e.target.value)}><option value="">all</option><option value="yes">connected</option><option value="no">away</option></select></label></div><${Trouble} error=${list.error}/>
    <${Table} name="sessions" caption="Sessions" rows=${list.rows} total=${filtered ? undefined : list.total} more=${list.more} loading=${list.loading} empty=${html`<${Empty} title=${filtered ? "No session fits" : "Nobody is here"} command=${filtered ? null : "weft sub 'magnitude >= 5' --name alerts"}>${filtered ? "Type less, or choose another state." : "A client appears here as soon as it connects. One with a name stays while it is away."}<//>`} columns=${[
      {label: "Session", key: "name", show: r => sessionLink(r.name)}, {label: "State", value: r => r.connected ? "connected" : "away", show: state}, {label: "Owner", key: "owner"}, {label: "Subscriptions", key: "subscriptions", number: true}, {label: "Events behind", key: "behind", number: true}, {label: "Published", key: "published", number: true}, {label: "Advertisements", key: "advertisements", number: true}]}/>`;
}
