// The workbench of filters.
import {html, useParam} from "../lib.js";
import {FilterBox} from "../forms.js";

export default function Filters() {
  const [where, set] = useParam("where");
  return html`<h1>Workbench</h1><${FilterBox} value=${where} onInput=${set}/>`;
}
