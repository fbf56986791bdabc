// The overview: the tree of brokers, rates, queues that are furthest behind, alarms in words.
import {html, bytes, count, go, plural, rate, segment, shown, span, useApi, useEffect, useLive, useMemo, useState, Link, Time} from "../lib.js";
import {Chart, Empty, Fact, Picture, State, Table, Trouble} from "../parts.js";
import {Boxes} from "../canvas.js";
import {brokerColumns, linkColumns, named} from "../lists.js";

export default function Overview() {
  const first = useApi("/overview"), live = useLive("overlay");
  const [chosen, choose] = useState(null), [series, grow] = useState({});
  const now = live.data || first.data;
  useEffect(() => { if (first.data) grow(first.data.series); }, [first.data]);
  useEffect(() => { if (live.data) grow(old => Object.fromEntries(Object.entries(live.data.rates).map(([name, value]) => [name, [...(old[name] || []), [live.data.at, value]].slice(-600)]))); }, [live.data]);
  const charted = useMemo(() => Object.keys(now?.rates || {}).map(name => ({label: name.replace("/s", ""), points: series[name] || [], show: rate})), [series, now]);
  if (!now) return html`<h1>Overview</h1><${Trouble} error=${first.error}/>${first.error?.status === 403 && html`<${Empty} title="You may not see the whole broker">Your own <${Link} to="/sessions">sessions<//> and <${Link} to="/subscriptions">subscriptions<//> are there. Ask the operator for the right 'status' to see this page.<//>`}`;
  const at = new Map(now.brokers.map((b, i) => [b.name, i]));
  const nodes = now.brokers.map(b => ({text: named(b.name), w: 190, kind: b.problem ? "bad" : b === now.brokers[0] ? "root" : "", lines: b.problem ? ["does not answer"] : [`${plural(b.subscriptions, "subscription")}`, `${plural(b.sessions, "session")}, ${rate(b.rate)} stored`]}));
  const state = (a, b) => { const l = now.brokers[a].links.find(x => x.peer === now.brokers[b].name) || now.brokers[b].links.find(x => x.peer === now.brokers[a].name); return !l ? "" : !l.connected ? "down" : !l.synced ? "cold" : ""; };
  const links = now.brokers.flatMap(b => b.links.map(l => ({...l, from: b.name})));
  return html`<h1>Overview</h1>
    <ul class="alarms ${now.alarms.length ? "" : "calm"}" aria-label="Alarms">${now.alarms.length ? now.alarms.map(a => html`<li class=${a.level}><${Link} to=${"/" + a.page.split("/").slice(1).map(segment).join("/")}>${shown(a.text)}<//></li>`) : html`<li>All brokers answer, all links are up, nobody is far behind.</li>`}</ul>
    <dl class="facts"><${Fact} label="Brokers">${count(now.brokers.length)}<//><${Fact} label="Subscriptions">${count(now.brokers.reduce((n, b) => n + b.subscriptions, 0))}<//><${Fact} label="Sessions">${count(now.brokers.reduce((n, b) => n + b.sessions, 0))}<//><${Fact} label=${`Events stored at ${named(now.brokers[0].name)}`}>${count(now.log.end - now.log.first)}<//><${Fact} label="Log">${bytes(now.log.bytes)}<//><${Fact} label="Up for">${span(Math.round(now.uptime))}<//></dl>
    <h2>Brokers</h2>
    <${Picture} label="of brokers" table=${html`<${Table} name="brokers" caption="Brokers" rows=${now.brokers} columns=${brokerColumns}/>`}>
      <${Boxes} picture=${now.drawing} nodes=${nodes} row="62" label="The tree of brokers" className="low" chosen=${chosen} choose=${choose} open=${i => go("/brokers/" + segment(now.brokers[i].name))} kindOf=${state}/><//>
    ${links.length > 0 && html`<h2>Links</h2><${Table} name="links" caption="Links" rows=${links} columns=${[{label: "Broker", key: "from"}, {label: "Neighbour", key: "peer"}, ...linkColumns]}/>`}
    <div class="columns"><section><h2>Rates at ${shown(named(now.brokers[0].name))}</h2>${charted.length ? html`<${Chart} label="Events per second in the last ten minutes" series=${charted}/>` : html`<p class="dim">The first rate is there in a second.</p>`}</section>
    <section><h2>Queues furthest behind</h2><${Table} name="queues" caption="Queues furthest behind" rows=${now.queues} empty=${html`<${Empty} title="No queue waits for anybody">Every durable subscription has acknowledged all its events.<//>`} columns=${[
      {label: "Session", value: q => q.share || q.session, show: q => q.session ? html`<${Link} to=${"/sessions/" + segment(q.session)}>${shown(q.session)}<//>` : shown(q.share || "no name")}, {label: "Events behind", key: "behind", number: true}, {label: "Not acknowledged", key: "open", number: true}, {label: "Reader", value: q => q.connected, show: q => q.connected ? html`<${State} kind="good">connected<//>` : html`<${State} kind="idle">away<//>`}]}/></section></div>
    <p class="dim">As of <${Time} at=${now.at}/>.</p>`;
}
