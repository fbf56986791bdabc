// The plane of two attributes: boxes, the curve with ranges, labels, negative boxes, and a point.
import {html, count, plural, shown, useApi, useParam} from "../lib.js";
import {Fact, Picture, State, Table, Trouble} from "../parts.js";
import {Canvas} from "../canvas.js";
import {Choice, Num, Steps, Tick, filters, none, num, useSource} from "../lab.js";

const LAYERS = [["boxes", "Filters"], ["curve", "Curve"], ["ranges", "Ranges of one"], ["merged", "Ranges of all, merged"], ["labels", "Labels of one"], ["negative", "Negative boxes"]];
const W = 900, H = 640;

function Plane({data, layers, choose, setPoint}) {
  const [x0, y0, x1, y1] = data.view, sx = W / (x1 - x0), sy = H / (y1 - y0);
  const X = v => (v - x0) * sx, Y = v => H - (v - y0) * sy;
  const rect = (r, cls, key, more = {}) => html`<rect key=${key} class=${cls} x=${X(r[0])} y=${Y(r[3])} width=${Math.max(1, X(r[2]) - X(r[0]))} height=${Math.max(1, Y(r[1]) - Y(r[3]))} ...${more}/>`;
  const click = e => { const box = e.currentTarget.ownerSVGElement.createSVGPoint(); box.x = e.clientX; box.y = e.clientY; const p = box.matrixTransform(e.currentTarget.ownerSVGElement.getScreenCTM().inverse()); setPoint([x0 + p.x / sx, y0 + (H - p.y) / sy].map(v => Math.round(v * 100) / 100)); };
  const on = name => layers.includes(name), ticks = (edges, low, high) => edges.filter(v => v >= low && v <= high);
  return html`<${Canvas} width=${W} height=${H} label=${`The plane of ${shown(data.x)} and ${shown(data.y)}`} className="tall">${({scale}) => html`<g class="plane" onClick=${click}>
    <rect class="ground" x="0" y="0" width=${W} height=${H}/>${rect([...data.low, ...data.high], "domain")}
    ${(on("curve") || on("ranges") || on("merged")) && html`<g class="cells">${ticks(data.edges[0], x0, x1).map(v => html`<path d="M${X(v)} 0V${H}"/>`)}${ticks(data.edges[1], y0, y1).map(v => html`<path d="M0 ${Y(v)}H${W}"/>`)}</g>`}
    ${on("merged") && html`<g>${data.merged.cells.map(r => rect(r, "told"))}${data.merged.extra.map(r => rect(r, "extra"))}</g>`}
    ${on("ranges") && data.ranges && html`<g>${data.ranges.cells.map(r => rect(r, "range"))}</g>`}
    ${on("labels") && data.labels && html`<g>${data.labels.labels.filter(l => l.rect).map(l => rect(l.rect, "label"))}</g>`}
    ${on("negative") && html`<g>${data.negative.boxes.map(r => rect(r, "negative"))}${data.negative.appeared.map(r => rect(r, "negative appeared"))}${data.negative.vanished.map(r => rect(r, "vanished"))}</g>`}
    ${on("curve") && html`<g class="hilbert">${data.curve.map(p => html`<path d=${"M" + p.map(([a, b]) => `${X(a).toFixed(1)} ${Y(b).toFixed(1)}`).join("L")}/>`)}</g>`}
    ${on("boxes") && html`<g>${data.filters.map(f => f.rects.map(r => rect(r, `filter ${f.number === data.chosen ? "chosen" : ""}`, f.number)))}</g>`}
    <g class="axes" font-size=${12 / Math.min(1, scale)}><text x="4" y=${H - 6}>${shown(data.x)} ${data.low[0]} … ${data.high[0]} →</text><text x="4" y=${16 / Math.min(1, scale)}>↑ ${shown(data.y)} ${data.low[1]} … ${data.high[1]}</text></g>
    ${data.point && html`<g class="point"><path d="M${X(data.point.event[data.x])} 0V${H}M0 ${Y(data.point.event[data.y])}H${W}"/><circle cx=${X(data.point.event[data.x])} cy=${Y(data.point.event[data.y])} r="6"/></g>`}</g>`}<//>`;
}

const Wrong = ({of, what}) => html`<p>${what}: of ${plural(of.events, "event")}, ${count(of.admitted)} admitted, ${count(of.matching)} match, <strong>${plural(of.false, "false positive")}</strong>. ${of.missed ? html`<${State} kind="bad">${plural(of.missed, "event")} missed<//>` : html`<${State} kind="good">none missed<//>`}</p>`;
const yes = v => v ? "yes" : "";

export default function Space() {
  const {source, live, controls, setStep} = useSource({filters: 12});
  const [x, setX] = useParam("x"), [y, setY] = useParam("y"), [bits] = useParam("bits", "4"), [gap] = useParam("gap", "0"), [most] = useParam("labels", "16"), [variable] = useParam("variable");
  const [chosen, choose] = useParam("chosen"), [point, setPoint] = useParam("point"), [shownLayers, setLayers] = useParam("show", "boxes curve ranges");
  const at = point ? point.split(",").map(Number) : null, layers = shownLayers.split(" ");
  const {data, error} = useApi("/space", {live, request: {source, x, y, bits: +bits, gap: +gap, labels: +most, variable: variable === "1", chosen: chosen ? +chosen : null, point: at}});
  const toggle = name => setLayers(LAYERS.map(l => l[0]).filter(l => l === name ? !layers.includes(l) : layers.includes(l)).join(" ") || "none");
  const set = p => setPoint(p.join(",")), attribute = (label, value, put) => html`<${Choice} label=${label} value=${value} set=${put} options=${data.names}/>`;
  const move = axis => e => { if (e.target.value !== "") { const next = at ?? [...data.low]; next[axis] = Number(e.target.value); set(next); } };
  return html`<h1>Space</h1><p>Filters over two attributes, as the routing models see them. Click the plane, or type a point.</p><div class="controls">${controls}</div><${Trouble} error=${error} lines="2"/>
    ${data && (!data.view ? none("No filters over two attributes", "Generate some, write rules that compare two attributes with numbers, or step forward.") : html`<${Steps} step=${data.step} steps=${data.steps} set=${setStep} last=${data.last}/>${data.notes.map(n => html`<p class="warn">${shown(n)}</p>`)}
      <div class="controls">${attribute("Across", data.x, setX)}${attribute("Up", data.y, setY)}<${Choice} label="Filter" value=${data.chosen ?? ""} set=${choose} options=${data.filters.map(f => [f.number, "#" + f.number])}/>
        <${Num} param="bits" label="Cells, 2 to the power of" fallback="4" min="2" max="6"/><${Num} param="gap" label="Gaps closed, up to" fallback="0" max="4096"/><${Num} param="labels" label="Labels, at most" fallback="16" min="1" max="256"/><${Tick} param="variable" label="Variable cells"/>
        <label class="field">${shown(data.x)}<input type="number" step="any" value=${at?.[0] ?? ""} onChange=${move(0)}/></label><label class="field">${shown(data.y)}<input type="number" step="any" value=${at?.[1] ?? ""} onChange=${move(1)}/></label></div>
      <fieldset class="layers"><legend>Show</legend>${LAYERS.map(([k, t]) => html`<label class="check ${k}"><input type="checkbox" checked=${layers.includes(k)} onChange=${() => toggle(k)}/>${t}</label>`)}</fieldset>
      <${Picture} label="of the plane" table=${html`<${Table} name="space" caption="Filters in the plane" rows=${data.filters} rowKey=${r => r.number} columns=${[num("number", "#"), filters(), num("rects", "Rectangles", {value: r => r.rects.length}), {label: "Also tests", value: r => r.others.join(", ")}, {label: "Negative space", value: r => data.negative.told.includes(r.number) ? "told" : "subsumed"}]} empty=${none("No filters yet", "Step forward.")}/>`}><${Plane} data=${data} layers=${layers} setPoint=${set}/><//>
      ${data.hidden ? html`<p class="dim">${plural(data.hidden, "filter")} more are not drawn.</p>` : ""}
      <div class="columns"><div>${data.ranges && html`<h2>#${data.chosen} on the curve</h2><${Wrong} of=${data.ranges} what=${plural(data.ranges.ranges.length, "range")}/><p class="dim mono">${data.ranges.ranges.slice(0, 24).map(([a, b]) => `${a}–${b}`).join(", ")}${data.ranges.ranges.length > 24 ? " …" : ""}</p>`}
        <h2>All filters together</h2><p>${plural(data.merged.separately, "range")} of single filters are told as ${plural(data.merged.ranges, "range")} of ${plural(data.merged.points, "cell")}; ${plural(data.merged.needless, "cell")} of closed gaps nobody needs.</p>
        <h2>Negative space</h2><p>${plural(data.negative.count, "box", "boxes")} that nothing covers; ${plural(data.negative.told.length, "filter")} told, ${plural(data.negative.passive.length, "filter")} subsumed by others${data.negative.exact ? "" : " (approximate)"}. In the last step ${plural(data.negative.appeared.length, "box", "boxes")} appeared and ${count(data.negative.vanished.length)} vanished.</p></div>
      <div>${data.labels && html`<h2>Labels of #${data.chosen}</h2><${Wrong} of=${data.labels} what=${plural(data.labels.count, "label")}/><p class="dim mono">${data.labels.labels.slice(0, 24).map(l => l.label).join(", ")}</p>`}
        ${data.point ? html`<h2>An event at the point</h2><p class="mono">${shown(JSON.stringify(data.point.event))}, cell ${data.point.index} of the curve</p><dl class="facts">${[["exact", "Somebody wants it"], ["curve", "Curve forwards it"], ["labels", "Labels forward it"], ["negative", "Told filters match"]].map(([k, t]) => html`<${Fact} label=${t}>${data.point.forwards[k] ? "yes" : "no"}<//>`)}</dl>
          <${Table} name="point" caption="Who matches at the point" rows=${data.point.rows} rowKey=${r => r.number} columns=${[num("number", "#"), filters(), {label: "Matches", value: r => yes(r.exact)}, {label: "Curve", value: r => yes(r.curve)}, {label: "Labels", value: r => yes(r.labels)}, {label: "Told", value: r => yes(r.told)}]} empty=${none("Nobody matches here, by any model")}/>` : html`<h2>An event at a point</h2>${none("No point yet", "Click the plane, or type two numbers above.")}`}</div></div>`)}`;
}
