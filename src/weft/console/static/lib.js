// What all pages share: markup, questions to the gateway, state in the address, the live connection, texts and numbers.
import {h, render, Fragment} from "./vendor/preact.js";
import {useEffect, useLayoutEffect, useMemo, useRef, useState, useCallback} from "./vendor/hooks.js";
import htm from "./vendor/htm.js";

export const html = htm.bind(h);
export {render, Fragment, useEffect, useLayoutEffect, useMemo, useRef, useState, useCallback};

// -- texts of others --------------------------------------------------------------------------------------------------

// What cannot be seen, or changes how other characters are shown: controls, bidirectional marks, joiners, fillers, tags.
const UNSEEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\ud800-\udfff\u{e0000}-\u{e0fff}]/gu;
const code = c => `U+${c.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}`;

/** A text of somebody else, in which everything can be seen. */
export const shown = text => String(text ?? "").replace(UNSEEN, c => `\u27e8${code(c)}\u27e9`);
export const short = (text, most = 80) => { const all = shown(text); return all.length > most ? all.slice(0, most - 1) + "\u2026" : all; };

// -- numbers and times ------------------------------------------------------------------------------------------------

const whole = new Intl.NumberFormat("en");
const rough = new Intl.NumberFormat("en", {maximumSignificantDigits: 3});
export const count = n => n === null || n === undefined ? "\u2013" : whole.format(n);
export const plural = (n, one, many = one + "s") => `${count(n)} ${n === 1 ? one : many}`;
export const rate = n => n === null || n === undefined ? "\u2013" : `${rough.format(n < 0.005 ? 0 : n)}/s`;
export const bytes = n => n < 1024 ? `${n} B` : n < 1 << 20 ? `${rough.format(n / 1024)} KiB` : n < 2 ** 30 ? `${rough.format(n / 2 ** 20)} MiB` : `${rough.format(n / 2 ** 30)} GiB`;
export const span = s => s < 100 ? `${rough.format(s)} s` : s < 6000 ? `${Math.round(s / 60)} min` : s < 172800 ? `${rough.format(s / 3600)} h` : `${Math.round(s / 86400)} days`;
/** A time in the local zone; hover shows UTC. `at` is in seconds or a text. */
export function Time({at, date = false}) {
  if (!at) return html`<span class="dim">never</span>`;
  const moment = new Date(typeof at === "number" ? at * 1000 : at);
  const sameDay = moment.toDateString() === new Date().toDateString();
  return html`<time dateTime=${moment.toISOString()} title=${moment.toISOString().replace("T", " ").replace("Z", " UTC")}>${date || !sameDay ? moment.toLocaleString() : moment.toLocaleTimeString()}</time>`;
}

// -- whether the page is at rest: body[data-ready] ----------------------------------------------------------------------

let pending = 0;
function settle() {
  if (pending) return;
  setTimeout(() => requestAnimationFrame(() => requestAnimationFrame(() => { if (!pending) document.body.dataset.ready = ""; })), 50);
}
export function busy() {
  pending++;
  delete document.body.dataset.ready;
  let done = false;
  return () => { if (!done) { done = true; pending--; settle(); } };
}

// -- questions --------------------------------------------------------------------------------------------------------

export class Problem extends Error {
  constructor(fields) { super(fields.detail || "the gateway did not answer"); this.fields = fields; this.status = fields.status || 0; }
}
let loggedOut = () => {};
export const onLogOut = f => { loggedOut = f; };

/** Ask the gateway: GET, or POST with a body. */
export async function api(path, body, signal) {
  const done = busy();
  try {
    const headers = {"weft-problems": "inline", ...(body === undefined ? {} : {"content-type": "application/json"})};
    const options = {signal, headers, ...(body === undefined ? {} : {method: "POST", body: JSON.stringify(body)})};
    let answer;
    try { answer = await fetch("/api/v1" + path, options); } catch (error) {
      if (error.name === "AbortError") throw error;
      throw new Problem({detail: "The gateway cannot be reached. It may be restarting; this page tries again by itself."});
    }
    let found;
    try { found = await answer.json(); } catch { found = {detail: `the gateway answered with status ${answer.status}`, status: answer.status}; }
    if (answer.ok && !found.problem) return found;
    const problem = new Problem(found.problem || found);
    if (problem.status === 401 && path !== "/session") loggedOut();
    throw problem;
  } finally { done(); }
}
export const query = given => { const all = new URLSearchParams(); for (const [name, value] of Object.entries(given)) if (value !== "" && value !== null && value !== undefined && value !== false) all.set(name, value); const text = all.toString(); return text ? "?" + text : ""; };

/** The answer to a question: {data, error, loading, reload, set}. Old data stays until new is there. `path` null: none. */
export function useApi(path, body) {
  const [state, set] = useState({data: null, error: null, loading: true, of: null});
  const [again, setAgain] = useState(0);
  const key = path === null ? null : path + "\n" + (body === undefined ? "" : JSON.stringify(body));
  useEffect(() => {
    if (key === null) { set({data: null, error: null, loading: false, of: null}); return; }
    const stop = new AbortController();
    set(old => ({...old, loading: true}));
    api(path, body, stop.signal).then(
      data => { if (!stop.signal.aborted) set({data, error: null, loading: false, of: key}); },
      error => { if (!stop.signal.aborted) set(old => ({data: old.of === key ? old.data : null, error, loading: false, of: key})); });
    return () => stop.abort();
  }, [key, again]);
  return {...state, reload: () => setAgain(n => n + 1), set: data => set({data, error: null, loading: false, of: key})};
}

/** A value that follows another one after a pause. */
export function useSettled(value, pause = 200) {
  const [kept, set] = useState(value);
  useEffect(() => { if (value === kept) return; const done = busy(); const timer = setTimeout(() => { set(value); done(); }, pause); return () => { clearTimeout(timer); done(); }; }, [value]);
  return kept;
}

// -- the address --------------------------------------------------------------------------------------------------------

const followers = new Set();
const moved = () => followers.forEach(f => f());
addEventListener("popstate", moved);
/** Go to a page: `go("/sessions")`, `go("/filters" + query({where}))`. */
export function go(to, replace = false) { history[replace ? "replaceState" : "pushState"](null, "", "/ui" + to); moved(); if (!replace) scrollTo(0, 0); }
export const here = () => ({path: location.pathname.replace(/^\/ui/, "") || "/", params: new URLSearchParams(location.search)});
export function useAddress() {
  const [, again] = useState(0);
  useEffect(() => { const f = () => again(n => n + 1); followers.add(f); return () => followers.delete(f); }, []);
  return here();
}
/** A part of the state that lives in the address: [value, set]. The fallback is not written there. */
export function useParam(name, fallback = "") {
  const value = useAddress().params.get(name) ?? fallback;
  const set = useCallback(next => {
    const {path, params} = here();
    if (next === fallback || next === null || next === "") params.delete(name); else params.set(name, next);
    const text = params.toString();
    go(path + (text ? "?" + text : ""), true);
  }, [name, fallback]);
  return [value, set];
}
/** A link within the console. */
export function Link({to, children, ...more}) {
  const click = e => { if (e.button || e.metaKey || e.ctrlKey || e.shiftKey) return; e.preventDefault(); go(to); };
  return html`<a href=${"/ui" + to} onClick=${click} ...${more}>${children}</a>`;
}
export const segment = text => encodeURIComponent(text).replace(/\./g, "%2E");

// -- the live connection: one WebSocket per tab ----------------------------------------------------------------------------

const topics = new Map(); // topic -> set of functions
let socket = null, wait = 500, timer = 0;
const states = new Set();
export let connected = true;
function tell(up) { if (up !== connected) { connected = up; states.forEach(f => f(up)); } }
function want() { if (socket && socket.readyState === 1) socket.send(JSON.stringify({topics: [...topics.keys()]})); }
function open() {
  if (socket || !topics.size) return;
  socket = new WebSocket(`${location.protocol === "https:" ? "wss" : "ws"}://${location.host}/api/v1/live`);
  socket.onopen = () => { wait = 500; tell(true); want(); };
  socket.onmessage = e => { const frame = JSON.parse(e.data); topics.get(frame.topic)?.forEach(f => f(frame)); };
  socket.onclose = () => {
    socket = null;
    if (!topics.size) return;
    tell(false);
    clearTimeout(timer);
    timer = setTimeout(open, wait * (0.75 + Math.random() / 2));
    wait = Math.min(wait * 2, 15000);
  };
}
/** The newest state of a topic: {data, problem}, both null before the first. `topic` null: none. */
export function useLive(topic) {
  const [state, set] = useState({data: null, problem: null, of: null});
  useEffect(() => {
    if (topic === null) return;
    const take = frame => set({data: frame.data ?? null, problem: frame.problem ?? null, of: topic});
    if (!topics.has(topic)) topics.set(topic, new Set());
    topics.get(topic).add(take);
    open(); want();
    return () => { const all = topics.get(topic); all.delete(take); if (!all.size) topics.delete(topic); want(); };
  }, [topic]);
  return state.of === topic ? state : {data: null, problem: null};
}
export function useConnected() {
  const [up, set] = useState(connected);
  useEffect(() => { states.add(set); return () => states.delete(set); }, []);
  return up;
}
