// Pictures in SVG that can be panned and zoomed with mouse, fingers and keys. What a box says depends on how large it is.
import {html, shown, useEffect, useLayoutEffect, useRef, useState} from "./lib.js";

const READABLE = 0.6; // below this zoom, boxes have short labels, and the whole text is below the picture

/**
 * width, height: of the content. children: a function of {scale, readable} that returns SVG. `height` of the element is
 * by class. Keys when the picture has the focus: + and - zoom, 0 shows all, arrows pan.
 */
export function Canvas({width, height, label, children, className = "", role = "group", below}) {
  const place = useRef(), drag = useRef(null);
  const [size, setSize] = useState([0, 0]);
  const [view, setView] = useState(null); // [x, y, scale], null: all of it
  useLayoutEffect(() => {
    const measure = () => place.current && setSize([place.current.clientWidth, place.current.clientHeight]);
    measure();
    const watch = new ResizeObserver(measure);
    watch.observe(place.current);
    return () => watch.disconnect();
  }, []);
  const [w, h] = size;
  const fit = Math.max(0.02, Math.min(1.25, (w - 16) / width, (h - 16) / height)) || 1;
  const scale = view ? view[2] : fit;
  const x = view ? view[0] : width / 2 - w / scale / 2, y = view ? view[1] : height / 2 - h / scale / 2;
  const zoom = (by, cx = w / 2, cy = h / 2) => { const s = Math.min(4, Math.max(fit / 4, scale * by)); setView([x + cx / scale - cx / s, y + cy / scale - cy / s, s]); };
  const pan = (dx, dy) => setView([x + dx / scale, y + dy / scale, scale]);
  useEffect(() => {
    const wheel = e => { if (!e.ctrlKey && !e.metaKey && !place.current.matches(":focus-within")) return; e.preventDefault(); const box = place.current.getBoundingClientRect(); zoom(Math.exp(-e.deltaY / 300), e.clientX - box.left, e.clientY - box.top); };
    const at = place.current;
    at.addEventListener("wheel", wheel, {passive: false});
    return () => at.removeEventListener("wheel", wheel);
  });
  const key = e => {
    if (e.ctrlKey || e.metaKey || e.altKey || e.defaultPrevented) return;
    const steps = {ArrowLeft: [-60, 0], ArrowRight: [60, 0], ArrowUp: [0, -60], ArrowDown: [0, 60]};
    if (e.key === "+" || e.key === "=") zoom(1.25); else if (e.key === "-") zoom(0.8); else if (e.key === "0") setView(null);
    else if (steps[e.key] && e.target === e.currentTarget) pan(...steps[e.key]); else return;
    e.preventDefault();
  };
  const down = e => { if (e.button || e.target.closest(".node,a,button")) return; drag.current = [e.clientX, e.clientY, false]; };
  const move = e => { // a click is not a drag
    if (!drag.current || !e.buttons) { drag.current = null; return; }
    const [fx, fy, dragging] = drag.current, dx = fx - e.clientX, dy = fy - e.clientY;
    if (!dragging && Math.abs(dx) + Math.abs(dy) < 5) return;
    if (!dragging) place.current.setPointerCapture(e.pointerId);
    pan(dx, dy); drag.current = [e.clientX, e.clientY, true]; };
  const up = () => { drag.current = null; };
  return html`<div class="canvas ${className}"><div class="paper" ref=${place} tabindex="0" role=${role} aria-label=${label + ". Keys: plus and minus zoom, 0 shows all, arrows move"} onKeyDown=${key} onPointerDown=${down} onPointerMove=${move} onPointerUp=${up} onPointerCancel=${up}>
    <svg viewBox="${x} ${y} ${w / scale || 1} ${h / scale || 1}" role="presentation">${w ? children({scale, readable: scale >= READABLE}) : ""}</svg></div>
    <div class="zoom"><button onClick=${() => zoom(1.25)} aria-label="Zoom in">+</button><button onClick=${() => zoom(0.8)} aria-label="Zoom out">\u2212</button><button onClick=${() => setView(null)} aria-label="Show all">${Math.round(scale * 100)}%</button></div>
    ${below !== undefined && html`<p class="readout">${below}</p>`}</div>`;
}

/** A line through points: horizontal parts straight, the others bent. */
export const bend = points => points.slice(1).reduce((d, [x, y], i) => { const [a, b] = points[i]; return d + (b === y ? `H${x}` : `C${(a + x) / 2} ${b} ${(a + x) / 2} ${y} ${x} ${y}`); }, `M${points[0][0]} ${points[0][1]}`);
const fitted = (text, width, size) => { const most = Math.max(1, Math.floor((width - 12) / (size * 0.62))); return text.length > most ? text.slice(0, most - 1) + "\u2026" : text; };

/**
 * Boxes and lines that the server has placed. nodes: [{text, short, lines: [more text], kind: css class, w, full: false for the short text alone}], picture:
 * {width, height, at, lines} of `weft.console.drawings`. Arrow keys walk along lines and layers, Enter calls `open`.
 */
export function Boxes({picture, nodes, row = 34, label, chosen, choose, open, className, kindOf}) {
  const [pointed, point] = useState(null);
  const at = picture.at, mid = row / 2;
  const walk = (i, key) => {
    if (key === "ArrowRight") return picture.lines.find(l => l[0] === i)?.[1];
    if (key === "ArrowLeft") return picture.lines.find(l => l[1] === i)?.[0];
    const way = key === "ArrowDown" ? 1 : key === "ArrowUp" ? -1 : 0;
    if (!way) return undefined;
    return at.map((p, j) => [Math.abs(p[0] - at[i][0]) < 5 ? way * (p[1] - at[i][1]) : -1, j]).filter(p => p[0] > 0).sort((p, q) => p[0] - q[0])[0]?.[1];
  };
  const press = i => e => {
    if (e.key === "Enter" || e.key === " ") { open?.(i); e.preventDefault(); e.stopPropagation(); return; }
    const to = walk(i, e.key);
    if (to === undefined) return;
    e.preventDefault(); e.stopPropagation();
    e.currentTarget.parentNode.querySelector(`[data-id="${to}"]`)?.focus();
  };
  const read = pointed ?? chosen;
  return html`<${Canvas} width=${picture.width} height=${picture.height} label=${label} className=${className} below=${read !== null && read !== undefined && nodes[read] ? shown([nodes[read].text, ...(nodes[read].lines || [])].join(" \u00b7 ")) : "\u00a0"}>
    ${({scale, readable}) => { const size = readable ? 12 : Math.min(24, 8 / scale);
      return html`<g>${picture.lines.map(([a, b, p]) => html`<path class="line ${a === read || b === read ? "on" : ""} ${kindOf ? kindOf(a, b) : ""}" d=${bend(p)}/>`)}</g>
      <g role="tree" aria-label=${label}>${nodes.map((n, i) => html`<g key=${i} class="node ${n.kind || ""} ${i === chosen ? "chosen" : ""}" role="treeitem" aria-selected=${i === chosen} tabindex=${i === (chosen ?? 0) ? 0 : -1} data-id=${i} aria-label=${shown([n.text, ...(n.lines || [])].join(", "))}
        onFocus=${() => choose?.(i)} onClick=${() => open?.(i)} onKeyDown=${press(i)} onPointerEnter=${() => point(i)} onPointerLeave=${() => point(null)}>
        <rect x=${at[i][0]} y=${at[i][1] - mid} width=${n.w} height=${row} rx="6"/>
        ${n.full === false ? html`<text class="name" x=${at[i][0] + 5} y=${at[i][1] + 4.5} font-size="12.5">${shown(n.short)}</text>` : html`<text class="name" x=${at[i][0] + 8} y=${at[i][1] - mid + (readable && n.lines?.length ? 8 + size * 0.7 : mid + size * 0.36)} font-size=${size}>${fitted(shown(readable ? n.text : n.short || n.text), n.w, size)}</text>
        ${readable && (n.lines || []).map((line, k) => html`<text class="more" x=${at[i][0] + 8} y=${at[i][1] - mid + 18 + (k + 1) * 14} font-size="11">${fitted(shown(line), n.w, 10)}</text>`)}`}</g>`)}</g>`; }}<//>`;
}
