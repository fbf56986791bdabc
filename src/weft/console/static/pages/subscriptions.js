// All subscriptions of a broker.
import {html, useAddress, useParam} from "../lib.js";
import {Empty, Search, Table, Trouble} from "../parts.js";
import {subscriptionColumns, useList} from "../lists.js";

export default function Subscriptions() {
  const {params} = useAddress(), [broker] = useParam("broker");
  const text = params.get("text") || "", session = params.get("session") || "";
  const list = useList("/subscriptions", {text, session, broker});
  return html`<h1>Subscriptions</h1><div class="controls"><${Search} label="Filter contains" placeholder="magnitude"/><${Search} param="session" label="Session is" placeholder="alerts"/></div><${Trouble} error=${list.error}/>
    <${Table} name="subscriptions" caption="Subscriptions" rows=${list.rows} more=${list.more} loading=${list.loading} empty=${html`<${Empty} title=${text || session ? "No subscription fits" : "There are no subscriptions"} command=${text || session ? null : "weft sub 'magnitude >= 5' --name alerts"}>${text || session ? "The text is searched in filters as they were written." : "Subscribe, and it appears here."}<//>`} columns=${subscriptionColumns}/>`;
}
