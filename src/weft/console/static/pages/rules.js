// What somebody may do, and whether a filter or an event is allowed.
import {html, plural, shown, useApi, useMemo, useParam, useSettled, useState, Link} from "../lib.js";
import {Empty, State, Trouble} from "../parts.js";
import {FilterBox} from "../forms.js";

const List = ({what, of}) => html`<h3>${what}</h3>${of === null ? html`<p><${State} kind="good">anything<//></p>` : of.length ? html`<ul class="plain">${of.map(r => html`<li><code>${shown(r)}</code></li>`)}</ul>` : html`<p><${State} kind="bad">nothing<//></p>`}`;

export default function Rules() {
  const [principal, set] = useParam("principal"), [where, setWhere] = useParam("where"), [text, setText] = useParam("event");
  const [known, know] = useState(null), who = useSettled(principal, 300), typed = useSettled(text, 300);
  const event = useMemo(() => { try { const e = JSON.parse(typed); return e && typeof e === "object" && !Array.isArray(e) ? e : null; } catch { return null; } }, [typed]);
  const {data: d, error} = useApi("/rules", {principal: who, filter: known?.filter || "", event});
  const me = !who;
  return html`<h1>Rules</h1><div class="controls"><label class="field"><span>What may this principal do?</span><input list="principals" value=${principal} onInput=${e => set(e.target.value)} placeholder="you"/></label><datalist id="principals">${(d?.principals || []).map(p => html`<option value=${p}></option>`)}</datalist></div><${Trouble} error=${error} lines="2"/>
    ${d && html`<p>${shown(d.principal || "A client without a name")} ${d.own ? "has rules of its own." : "has the rules of everybody without rules of their own."}</p><div class="columns"><section><${List} what=${me ? "You may subscribe to" : "May subscribe to"} of=${d.subscribe}/></section><section><${List} what=${me ? "You may publish" : "May publish"} of=${d.publish}/></section><section><h3>Further rights</h3><p>${d.further.length ? d.further.map(r => html`<span class="tag">${r}</span> `) : "none"}</p></section></div>`}
    <h2>Test a filter</h2><${FilterBox} value=${where} onInput=${setWhere} known=${know} label="Filter to subscribe to"/><p role="status" class="verdict">${d && known ? d.subscribe_problem ? html`<${State} kind="bad">${shown(d.subscribe_problem)}<//>${d.nearest && html` The nearest rule is <code>${shown(d.nearest)}</code>.`}` : html`<${State} kind="good">Allowed: the rules cover it.<//>` : "\u00a0"}</p>
    <h2>Test an event</h2><label for="rule-event">Event: a JSON object</label><textarea id="rule-event" rows="2" value=${text} spellcheck=${false} placeholder='{"magnitude": 6.1}' onInput=${e => setText(e.target.value)}></textarea><p role="status" class="verdict">${typed.trim() && !event ? html`<span class="bad">This is not a JSON object.</span>` : d && event ? html`${d.publish_problem ? html`<${State} kind="bad">${shown(d.publish_problem)}<//>` : html`<${State} kind="good">May be published.<//>`} ${d.read ? html`<${State} kind="good">May be read.<//>` : html`<${State} kind="bad">No rule lets it be read.<//>`}` : "\u00a0"}</p>`;
}
