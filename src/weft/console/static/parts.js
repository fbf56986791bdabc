// Parts of pages: tables with search, sorting and downloads; empty states; problems; charts; pictures as tables.
import {html, count, go, plural, shown, useEffect, useMemo, useParam, useState, Fragment} from "./lib.js";

/** What to say where nothing is to be shown: a title, what to do, perhaps a command. */
export const Empty = ({title, children, command}) => html`<div class="empty"><p class="what">${title}</p>${children && html`<p>${children}</p>`}${command && html`<pre>${command}</pre>`}</div>`;

/** A problem in words; `caret` is under the place in a text, if there is one. The space is reserved by `lines`. */
export function Trouble({error, lines = 0}) {
  if (!error && !lines) return null;
  const f = error?.fields || {};
  const text = f.text && f.column ? `${shown(f.text.split("\n")[(f.line || 1) - 1] ?? f.text)}\n${" ".repeat(f.column - 1)}${"^".repeat(Math.max(1, f.length || 1))}` : "";
  return html`<div class="trouble lines${lines}" role="status">${error && html`<${Fragment}>${text && html`<pre>${text}</pre>`}<p>${shown(error.message)}${f.hint ? ` \u2013 ${shown(f.hint)}` : ""}</p>${f.nearest_rule && html`<p>The nearest rule is <code>${shown(f.nearest_rule)}</code>.</p>`}<//>`}</div>`;
}

const cell = (column, row) => column.value ? column.value(row) : row[column.key];
const plainText = value => value === null || value === undefined ? "" : typeof value === "object" ? JSON.stringify(value) : String(value);
/** A cell of a CSV file. A spreadsheet must not take a text for a formula. */
export const csvCell = value => { let text = plainText(value); if (typeof value !== "number" && /^[=+\-@\t\r]/.test(text)) text = "'" + text; return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text; };

export function save(name, kind, text) {
  const url = URL.createObjectURL(new Blob([text], {type: kind}));
  const link = document.createElement("a");
  link.href = url; link.download = name; link.click();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
}

/**
 * A table. columns: [{key, label, value: row => for sorting and files, show: row => what is drawn, number: bool}].
 * `total` rows exist of which `rows` are here; `more` loads others. `name` is that of files. `empty` is shown without rows.
 */
export function Table({columns, rows, total, more, name, empty, caption, loading, rowKey}) {
  const [sort, setSort] = useState({at: -1, down: false});
  const whole = !more;
  const sorted = useMemo(() => {
    if (sort.at < 0 || !whole) return rows;
    const column = columns[sort.at], way = sort.down ? -1 : 1;
    return [...rows].sort((a, b) => { const x = cell(column, a), y = cell(column, b); return way * (x === y ? 0 : x === null || x === undefined ? 1 : y === null || y === undefined ? -1 : x < y ? -1 : 1); });
  }, [rows, sort, whole, columns]);
  if (!rows.length && !loading) return empty || html`<${Empty} title="Nothing to show"/>`;
  const csv = () => save(`${name}.csv`, "text/csv", [columns.map(c => csvCell(c.label)).join(","), ...sorted.map(row => columns.map(c => csvCell(cell(c, row))).join(","))].join("\r\n") + "\r\n");
  const json = () => save(`${name}.json`, "application/json", JSON.stringify(sorted, null, 1));
  return html`<div class="table">
    <div class="scroll" tabindex="0" role="region" aria-label=${caption}><table><caption>${caption}</caption><thead><tr>${columns.map((c, i) => html`<th scope="col" class=${c.number ? "number" : ""} aria-sort=${sort.at === i ? sort.down ? "descending" : "ascending" : "none"}>
      ${whole && c.label ? html`<button class="sort" onClick=${() => setSort({at: i, down: sort.at === i && !sort.down})}>${c.label}<span aria-hidden="true">${sort.at === i ? sort.down ? " \u2193" : " \u2191" : ""}</span></button>` : c.label}</th>`)}</tr></thead>
      <tbody>${sorted.map((row, i) => html`<tr key=${rowKey ? rowKey(row) : i}>${columns.map(c => html`<td class=${(c.number ? "number " : "") + (c.class || "")}>${c.show ? c.show(row) : c.number ? count(cell(c, row)) : shown(cell(c, row))}</td>`)}</tr>`)}</tbody></table></div>
    <p class="under"><span>${total !== undefined && total !== null ? `${count(rows.length)} of ${plural(total, "row")}` : plural(rows.length, "row")}${more ? html` <button onClick=${more} disabled=${loading}>Load more</button>` : ""}</span>
      <span class="files"><button onClick=${csv}>CSV</button> <button onClick=${json}>JSON</button></span></p></div>`;
}

/** A box to search in; what is typed is kept in the address. */
export function Search({param = "text", label = "Search", placeholder, pause = 200}) {
  const [value, set] = useParam(param);
  const [typed, type] = useState(value);
  useEffect(() => { if (typed === value) return; const timer = setTimeout(() => set(typed), pause); return () => clearTimeout(timer); }, [typed]);
  useEffect(() => { type(value); }, [value]);
  return html`<label class="search"><span>${label}</span><input type="search" value=${typed} placeholder=${placeholder} onInput=${e => type(e.target.value)}/></label>`;
}

/** A picture that can be looked at as a table, too. */
export function Picture({children, table, param = "as", label}) {
  const [as, set] = useParam(param, "picture");
  return html`<div class="picture"><p class="switch"><button aria-pressed=${as === "table"} onClick=${() => set(as === "table" ? "picture" : "table")}>${as === "table" ? "As picture" : "As table"}<span class="unseen"> ${label}</span></button></p>${as === "table" ? table : children}</div>`;
}

const nice = most => { const ten = 10 ** Math.floor(Math.log10(most || 1)); return [1, 2, 5, 10].find(n => n * ten >= most) * ten; };
/** A chart of series over the last minutes: series [{label, points: [[seconds, value]], show: value => text}]. */
export function Chart({series, label, minutes = 10}) {
  const all = series.flatMap(s => s.points), end = Math.max(...all.map(p => p[0]), 0), most = nice(Math.max(...all.map(p => p[1]), 1));
  const W = 600, H = 140, x = t => 40 + (W - 44) * (1 - (end - t) / (60 * minutes)), y = v => 6 + (H - 26) * (1 - v / most);
  const line = points => points.filter(p => p[0] > end - 60 * minutes).map((p, i) => `${i ? "L" : "M"}${x(p[0]).toFixed(1)} ${y(p[1]).toFixed(1)}`).join("");
  return html`<figure class="chart"><svg viewBox="0 0 ${W} ${H}" role="img" aria-label=${label}>${[0, 0.5, 1].map(part => html`<path class="grid" d="M40 ${y(part * most)}H${W - 4}"/><text class="axis end" x="36" y=${y(part * most) + 4}>${count(part * most)}</text>`)}
    ${[0, 0.5, 1].map(part => html`<text class="axis ${part === 1 ? "" : part ? "mid" : "end"}" x=${x(end - part * 60 * minutes)} y=${H - 4}>${part ? `${part * minutes} min ago` : "now"}</text>`)}
    ${series.map((s, i) => html`<path class="series s${i}" d=${line(s.points)}/>`)}</svg><figcaption>${series.map((s, i) => html`<span class="key s${i}">${s.label}${s.points.length ? ` ${s.show(s.points.at(-1)[1])}` : ""}</span>`)}</figcaption></figure>`;
}

/** Bars over time: bars [[label, number]]. */
export function Bars({bars, label}) {
  const most = Math.max(...bars.map(b => b[1]), 1), w = 600 / bars.length;
  return html`<svg class="bars" viewBox="0 0 600 74" preserveAspectRatio="none" role="img" aria-label=${label}><path class="grid" d="M0 72H600"/>${bars.map(([name, n], i) => n ? html`<rect x=${i * w + 0.5} y=${72 - 68 * n / most} width=${Math.max(1, w - 1)} height=${68 * n / most}><title>${name}: ${count(n)}</title></rect>` : null)}</svg>`;
}

/** A number with its name and unit. */
export const Fact = ({label, children}) => html`<div class="fact"><dt>${label}</dt><dd>${children}</dd></div>`;
/** A state in words and by its shape, so that colour is not needed. kind: good, warn, bad, idle. */
export const State = ({kind, children}) => html`<span class="state ${kind}"><span aria-hidden="true">${{good: "\u25cf", warn: "\u25b2", bad: "\u25a0", idle: "\u25cb"}[kind]}</span> ${children}</span>`;

/** A button that asks before it does something that cannot be undone. */
export function Sure({children, question, act, label}) {
  const [asked, ask] = useState(false);
  const [error, fail] = useState(null);
  const yes = async () => { try { await act(); ask(false); fail(null); } catch (e) { fail(e); } };
  if (!asked) return html`<button class="careful" onClick=${() => ask(true)} aria-label=${label}>${children}</button>`;
  return html`<span class="sure" role="group" aria-label=${question}>${question} <button class="careful" onClick=${yes}>Yes</button> <button onClick=${() => { ask(false); fail(null); }}>No</button>${error && html`<span class="bad"> ${shown(error.message)}</span>`}</span>`;
}
