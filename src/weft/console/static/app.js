// The shell: log-in, navigation, the command box, and the page that the address names.
import {api, busy, go, html, onLogOut, query, render, short, useAddress, useConnected, useEffect, useLayoutEffect, useRef, useState, Link, Problem, segment} from "./lib.js";
import {Empty, Trouble} from "./parts.js";

const loaded = new Map(); // name -> component
const decoded = part => { try { return decodeURIComponent(part); } catch { return part; } };

function LogIn({done, reason}) {
  const [token, set] = useState(""), [error, fail] = useState(reason), box = useRef();
  useEffect(() => { box.current.focus(); }, []);
  const submit = async e => { e.preventDefault(); try { await api("/session", {token: token.trim()}); fail(null); done(); } catch (problem) { fail(problem); } };
  return html`<main class="login" id="main"><h1>Weft</h1><form onSubmit=${submit}><label for="token">Token</label><input type="text" autocomplete="username" value="weft" hidden/><input id="token" ref=${box} type="password" autocomplete="current-password" value=${token} onInput=${e => set(e.target.value)}/>
    <p class="dim">This broker wants to know who you are. Paste a token, or run <code>weft console --open</code> where your token is.</p><button class="main" disabled=${!token.trim()}>Log in</button><${Trouble} error=${error} lines="2"/></form></main>`;
}

function CommandBox({pages, close}) {
  const [text, set] = useState(""), [at, move] = useState(0), dialog = useRef(), box = useRef();
  useLayoutEffect(() => { const back = document.activeElement; dialog.current.showModal(); box.current.focus(); return () => back?.focus?.(); }, []);
  const typed = text.trim(), low = typed.toLowerCase();
  const found = pages.filter(p => p.group && (!low || p.title.toLowerCase().includes(low))).map(p => ({to: "/" + (p.name === "overview" ? "" : p.name), what: p.title, about: p.about}));
  if (typed.startsWith("{")) found.unshift({to: "/publish" + query({event: typed}), what: "Explain or publish this event", about: short(typed)});
  else if (typed) found.push(
    {to: "/filters" + query({where: typed}), what: "Open in the workbench, as a filter", about: short(typed)},
    {to: "/events" + query({where: typed}), what: "Search events that match this filter", about: short(typed)},
    {to: "/sessions/" + segment(typed), what: "Go to the session of this name", about: short(typed)},
    {to: "/subscriptions" + query({text: typed}), what: "Search subscriptions for this text", about: short(typed)});
  const take = i => { if (found[i]) { close(); go(found[i].to); } };
  const key = e => {
    if (e.key === "ArrowDown") move(Math.min(found.length - 1, at + 1)); else if (e.key === "ArrowUp") move(Math.max(0, at - 1)); else if (e.key === "Enter") take(Math.min(at, found.length - 1)); else return;
    e.preventDefault();
  };
  return html`<dialog class="command" ref=${dialog} aria-label="Command box" onClose=${close} onClick=${e => { if (e.target === dialog.current) close(); }}>
    <label class="unseen" for="command">A page, a filter, an event or a name</label>
    <input id="command" ref=${box} role="combobox" aria-expanded="true" aria-controls="commands" aria-activedescendant=${found.length ? `command-${Math.min(at, found.length - 1)}` : undefined} value=${text} placeholder="A page, a filter, an event or a name" autocomplete="off" spellcheck=${false} onInput=${e => { set(e.target.value); move(0); }} onKeyDown=${key}/>
    <ul id="commands" role="listbox" aria-label="Suggestions">${found.map((f, i) => html`<li id=${`command-${i}`} role="option" aria-selected=${i === Math.min(at, found.length - 1)} onClick=${() => take(i)}><strong>${f.what}</strong> <span class="dim">${f.about}</span></li>`)}</ul></dialog>`;
}

function Page({name, rest}) {
  const [, again] = useState(0), [error, fail] = useState(null);
  useEffect(() => {
    if (loaded.has(name)) return;
    let gone = false;
    const done = busy();
    import(`./pages/${name}.js`).finally(done).then(module => { loaded.set(name, module.default); if (!gone) again(n => n + 1); }, problem => { if (!gone) fail(new Problem({detail: `The page could not be loaded: ${problem.message}`})); });
    return () => { gone = true; };
  }, [name]);
  const View = loaded.get(name);
  if (error) return html`<${Trouble} error=${error}/>`;
  return View ? html`<${View} key=${name} rest=${rest}/>` : html`<p class="dim">Loading\u2026</p>`;
}

function Lost() {
  const up = useConnected();
  return html`<div class="banner" role="status">${up ? "" : "The connection to the gateway is lost. What you see may be old; connecting again\u2026"}</div>`;
}

function App() {
  const [who, know] = useState(null), [error, fail] = useState(null), [asking, ask] = useState(false), [menu, open] = useState(false);
  const {path} = useAddress();
  const enter = async () => {
    const found = location.hash.match(/^#code=([\w-]+)$/);
    if (found) { history.replaceState(null, "", location.pathname + location.search); try { await api("/session", {code: found[1]}); } catch { /* the form says more */ } }
    try { know(await api("/session")); fail(null); } catch (problem) { know(null); fail(problem); }
  };
  useEffect(() => { enter(); onLogOut(() => know(null) || fail(new Problem({status: 401, detail: "Your login has ended. Log in again."}))); }, []);
  useEffect(() => { if (error && error.status !== 401) { const timer = setTimeout(enter, 3000); return () => clearTimeout(timer); } }, [error]);
  useEffect(() => {
    const key = e => { if ((e.ctrlKey || e.metaKey) && e.key.toLowerCase() === "k") { e.preventDefault(); ask(true); } };
    addEventListener("keydown", key);
    return () => removeEventListener("keydown", key);
  }, []);
  useEffect(() => { open(false); }, [path]);
  const [, first = "", ...rest] = path.split("/");
  const page = who && (who.pages.find(p => p.name === (first || "overview")));
  useEffect(() => { document.title = page ? `${page.title} \u2013 Weft` : "Weft"; }, [page?.title]);
  if (!who) return error?.status === 401 ? html`<${LogIn} done=${enter} reason=${location.hash ? error : error.message.startsWith("Your") ? error : null}/>` : html`<main id="main" class="login"><h1>Weft</h1><${Trouble} error=${error} lines="2"/></main>`;
  const out = async () => { await api("/session/end", {}); know(null); await enter(); };
  const groups = [...new Set(who.pages.map(p => p.group).filter(Boolean))];
  return html`<a class="skip" href="#main">Skip to the page</a><header class="top"><button class="menu" aria-expanded=${menu} aria-controls="nav" onClick=${() => open(!menu)}>Menu</button><${Link} to="/" class="brand"><img src="/ui/static/icon.svg" alt="" width="22" height="22"/> Weft<//>
      <button class="ask" onClick=${() => ask(true)}>Go to\u2026 <kbd>Ctrl K</kbd></button><span class="who">${who.principal ? html`${short(who.principal, 40)} <button onClick=${out}>Log out</button>` : html`<span class="dim">no log-in needed</span>`}</span></header>
    <${Lost}/>
    <nav id="nav" class=${menu ? "open" : ""} aria-label="Pages">${groups.map(g => html`<h2>${g}</h2><ul>${who.pages.filter(p => p.group === g).map(p => html`<li><${Link} to=${p.name === "overview" ? "/" : "/" + p.name} aria-current=${page?.name === p.name ? "page" : undefined} title=${p.about}>${p.title}<//></li>`)}</ul>`)}</nav>
    <main id="main" tabindex="-1">${page ? html`<${Page} key=${page.name} name=${page.name} rest=${rest.map(decoded)}/>` : html`<h1>Not here</h1><${Empty} title="There is no such page">Choose one on the left, or press Ctrl K.<//>`}</main>
    ${asking && html`<${CommandBox} pages=${who.pages} close=${() => ask(false)}/>`}`;
}
render(html`<${App}/>`, document.getElementById("app"));
