// Options of the server with their sources, and the last lines of its log.
import { html, useState } from "../lib.js";
import { get, post } from "../api.js";
import { time } from "../format.js";
import { href, route, setQuery } from "../router.js";
import { may, useData } from "../state.js";
import { Action, Badge, Commands, Field, Heading, Loaded, SearchField, Tabs } from "../parts/basics.js";
import { Table } from "../parts/table.js";

export default function Settings() {
  const tab = route.value.parts[1] ?? "options";
  const tabs = [{ id: "options", name: "Options", to: href(["settings"]) }, { id: "log", name: "Log", to: href(["settings", "log"]) }];
  const [done, setDone] = useState("");
  const reload = async () => {
    const { loaded, needs_restart: late } = await post("/v1/broker/reload");
    setDone(`Loaded again${loaded.length ? `: ${loaded.join(", ")}` : ", nothing had changed"}.${late.length ? ` These need a restart: ${late.join(", ")}.` : ""}`);
  };
  return html`<${Heading} title="Settings">
      <a class="button" href="/docs">API</a><a class="button" href="/metrics">Metrics</a>
      ${may("AlterConfigs") && html`<${Action} onClick=${reload}>Load the configuration again<//>`}
    <//>
    <p role="status">${done}</p>
    <${Tabs} label="Settings" tabs=${tabs} current=${tab} />
    ${tab === "options" ? html`<${Options} />` : html`<${Log} />`}`;
}

function Options() {
  const loaded = useData(() => get("/v1/config"), []);
  const { search = "", only = "" } = route.value.query;
  return html`<div class="filters"><${SearchField} label="Option contains" value=${search} onInput=${(text) => setQuery({ search: text })} />
      <${Field} label="Show"><select value=${only} onChange=${(e) => setQuery({ only: e.target.value })}><option value="">all</option><option value="set">those that are set</option></select><//></div>
    <${Loaded} loaded=${loaded}>${(found) => html`<${Table} label="Options" keyOf=${(each) => each.key} empty="No option fits; a broker inside a program has none."
      rows=${found.options.filter((each) => each.key.includes(search) && (!only || each.source !== "default"))} columns=${[
        { name: "Option", wide: true, cell: (each) => html`<strong>${each.key}</strong><small>${each.help}</small>` },
        { name: "Value", wide: true, cell: (each) => each.value }, { name: "Default", cell: (each) => each.default },
        { name: "Source", cell: (each) => html`<${Badge} kind=${each.source === "default" ? "quiet" : "info"}>${each.source}<//>` },
      ]} />`}<//>
    <${Commands} commands=${["sparrow config show", `curl ${location.origin}/v1/config`]} />`;
}

const KINDS = { warning: "warn", error: "bad", critical: "bad", info: "", debug: "quiet" };

function Log() {
  const loaded = useData(() => get("/v1/log"), [], { every: 2000 });
  return html`<${Loaded} loaded=${loaded}>${(found) => html`<div class="log"><${Table} label="Log, newest first" rows=${found.lines.map((each, i) => ({ ...each, i })).reverse()} keyOf=${(each) => `${each.time_ms}:${each.i}`} empty="Nothing was logged since the start." columns=${[
      { name: "Time", cell: (each) => time(each.time_ms) }, { name: "Level", cell: (each) => html`<${Badge} kind=${KINDS[each.level] ?? ""}>${each.level}<//>` },
      { name: "Text", wide: true, cell: (each) => html`<small>${each.logger}</small>${each.text}` },
    ]} /></div>`}<//>
    <p class="hint">The last 500 lines, kept in memory.</p><${Commands} commands=${[`curl ${location.origin}/v1/log`]} />`;
}
