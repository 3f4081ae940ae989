// The shell: navigation, banners, login, keys, and the page of the address.
import { html, render, useEffect, useState } from "./lib.js";
import { lostSince, needsLogin, pulse, request } from "./api.js";
import { count, duration, plural } from "./format.js";
import { go, href, Link, route } from "./router.js";
import { alerts, follow, identify, live, may, me, now } from "./state.js";
import { Announce } from "./parts/basics.js";
import { Dialog } from "./parts/dialog.js";
import { Login } from "./pages/login.js";

/** @type {{id: string, name: string, key: string, load: () => Promise<any>, needs?: string}[]} */
const PAGES = [
  { id: "", name: "Overview", key: "o", load: () => import("./pages/overview.js") },
  { id: "topics", name: "Topics", key: "t", load: () => import("./pages/topics.js") },
  { id: "queues", name: "Queues", key: "q", load: () => import("./pages/queues.js") },
  { id: "groups", name: "Groups", key: "r", load: () => import("./pages/groups.js") },
  { id: "schedules", name: "Schedules", key: "d", load: () => import("./pages/schedules.js") },
  { id: "pipelines", name: "Pipelines", key: "p", load: () => import("./pages/pipelines.js") },
  { id: "access", name: "Access", key: "a", load: () => import("./pages/access.js"), needs: "Describe" },
  { id: "connections", name: "Connections", key: "c", load: () => import("./pages/connections.js"), needs: "Describe" },
  { id: "settings", name: "Settings", key: "s", load: () => import("./pages/settings.js"), needs: "DescribeConfigs" },
];
const seen = () => PAGES.filter((each) => !each.needs || may(each.needs));

/**
 * Modules of pages that were opened.
 * @type {Record<string, any>}
 */
const loaded = {};

function Page() {
  const id = route.value.parts[0] ?? "";
  const page = PAGES.find((each) => each.id === id);
  const [, refresh] = useState(0);
  const [failed, setFailed] = useState(false);
  useEffect(() => {
    setFailed(false);
    if (page && !loaded[id]) {
      page.load().then((module) => { loaded[id] = module.default; refresh((n) => n + 1); }, () => setFailed(true));
    }
  }, [id, pulse.value]);
  if (!page) return html`<h1>There is no such page</h1><p><${Link} to=${href([])}>To the overview<//></p>`;
  if (page.needs && !may(page.needs)) return html`<h1>${page.name}</h1><p class="note bad">You are not allowed to see this. It takes the right ${page.needs} on the cluster; an administrator can grant it.</p>`;
  if (failed && !loaded[id]) return html`<p class="note bad" role="alert">This page could not be loaded. <a href=${location.href}>Load the console again</a>: the broker may run another version now.</p>`;
  const Content = loaded[id];
  return Content ? html`<${Content} key=${id} />` : html`<p class="loading">Loading …</p>`;
}

function Banner() {
  if (!lostSince.value) return null;
  const lost = duration(Math.max(0, now.value - lostSince.value));
  return html`<div class="banner" role="alert">The broker does not answer since ${lost}. This page goes on by itself when it is back; what it shows is from before.</div>`;
}

function Attention() {
  const found = alerts.value?.length ?? 0;
  return found ? html`<${Link} class="attention" to=${href([])}>${plural(found, "thing needs", "things need")} attention<//>` : null;
}

async function logout() {
  await request("DELETE", "/v1/session");
  me.value = null;
  alerts.value = live.value = null;
  follow();
  await identify();
}

function Shell() {
  const [help, setHelp] = useState(false);
  useEffect(() => keys(() => setHelp(true)), []);
  const id = route.value.parts[0] ?? "";
  const rates = live.value?.rates;
  return html`<a class="skip" href="#main" onClick=${(e) => { e.preventDefault(); document.getElementById("main")?.focus(); }}>Skip to the content</a>
    <header>
      <${Link} class="brand" to=${href([])}>Sparrow<//>
      <nav aria-label="Pages"><ul>${seen().map((each) => html`<li><${Link} to=${href(each.id ? [each.id] : [])} aria-current=${each.id === id ? "page" : undefined}>${each.name}<//></li>`)}</ul></nav>
      <div class="who">
        <${Attention} />
        ${me.value?.principal ? html`<span>${me.value.principal.replace(/^User:/, "")}</span>` : null}
        ${me.value?.login === "password" || me.value?.login === "token" ? html`<button type="button" class="plain" onClick=${logout}>Log out</button>` : null}
        <button type="button" class="plain" aria-label="Keys" onClick=${() => setHelp(true)}>?</button>
      </div>
    </header>
    <${Banner} />
    <main id="main" tabindex="-1"><${Page} /></main>
    ${rates && html`<${Announce} text=${`${count(rates.messages_in)} messages per second in, ${count(rates.messages_out)} out`} />`}
    ${help && html`<${Help} onClose=${() => setHelp(false)} />`}`;
}

/** @param {{onClose: () => void}} props */
function Help({ onClose }) {
  return html`<${Dialog} title="Keys" onClose=${onClose}>
    <dl class="facts">
      <dt><kbd>/</kbd></dt><dd>Search on this page</dd>
      ${seen().map((each) => html`<dt><kbd>g</kbd> <kbd>${each.key}</kbd></dt><dd>${each.name}</dd>`)}
      <dt><kbd>?</kbd></dt><dd>These keys</dd>
      <dt><kbd>Esc</kbd></dt><dd>Close</dd>
    </dl>
  <//>`;
}

/**
 * Keys that work everywhere but in fields.
 * @param {() => void} showHelp
 */
function keys(showHelp) {
  let isGoing = false;
  const pressed = (event) => {
    const target = /** @type {HTMLElement} */ (event.target);
    if (event.ctrlKey || event.metaKey || event.altKey || target.closest("input, textarea, select, dialog")) return;
    if (isGoing) {
      isGoing = false;
      const page = seen().find((each) => each.key === event.key);
      if (page) go(href(page.id ? [page.id] : []));
    } else if (event.key === "g") {
      isGoing = true;
    } else if (event.key === "?") {
      showHelp();
    } else if (event.key === "/") {
      event.preventDefault();
      /** @type {HTMLElement | null} */ (document.querySelector("[data-search]"))?.focus();
    }
  };
  addEventListener("keydown", pressed);
  return () => removeEventListener("keydown", pressed);
}

function App() {
  const [isKnown, setKnown] = useState(false);
  useEffect(() => {
    const again = async () => { await identify(); setKnown(me.value !== null || needsLogin.value); };
    again();
    const timer = setInterval(() => { if (lostSince.value && !document.hidden) again(); }, 2000);
    return () => clearInterval(timer);
  }, []);
  useEffect(follow, [me.value, needsLogin.value]);
  useEffect(() => {
    document.addEventListener("visibilitychange", follow);
    return () => document.removeEventListener("visibilitychange", follow);
  }, []);
  if (needsLogin.value) return html`<${Banner} /><main id="main"><${Login} wasIn=${me.value !== null} /></main>`;
  return isKnown ? html`<${Shell} />` : html`<${Banner} /><p class="loading">Loading …</p>`;
}

const root = /** @type {HTMLElement} */ (document.getElementById("app"));
root.replaceChildren();
render(html`<${App} />`, root);
