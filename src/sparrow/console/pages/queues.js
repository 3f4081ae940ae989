// The list of queues; a queue has a page of its own.
import { html, useState } from "../lib.js";
import { get, post } from "../api.js";
import { count, duration, rate, shell } from "../format.js";
import { go, href, Link, route, setQuery } from "../router.js";
import { may, useData } from "../state.js";
import { Action, Badge, Commands, Field, Heading, Loaded, Pager, SearchField } from "../parts/basics.js";
import { Dialog } from "../parts/dialog.js";
import { Table } from "../parts/table.js";
import { StateBar } from "../parts/statebar.js";
import Queue from "./queue.js";

const LIMIT = 50;

export default function Queues() {
  const name = route.value.parts[1];
  return name ? html`<${Queue} key=${name} name=${name} />` : html`<${List} />`;
}

function List() {
  const { search = "", skip: at = "0" } = route.value.query;
  const skip = Number(at) || 0;
  const [creating, setCreating] = useState(false);
  const query = { pattern: search ? `*${search}*` : "*", limit: LIMIT, skip };
  const loaded = useData((signal) => get("/v1/overview/queues", query, signal), [search, skip], { every: 2000 });
  return html`<${Heading} title="Queues" loaded=${loaded}>
      ${may("AlterConfigs") && html`<button type="button" class="main" onClick=${() => setCreating(true)}>Create queue</button>`}
    <//>
    <${SearchField} label="Name contains" value=${search} onInput=${(text) => setQuery({ search: text, skip: "" })} />
    <${Loaded} loaded=${loaded}>${(found) => html`
      <${Table} label="Queues" rows=${found.queues} keyOf=${(each) => each.id}
        empty=${search ? "No queue has such a name." : "There is no queue that you may see."} columns=${columns()} />
      <${Pager} skip=${skip} limit=${LIMIT} total=${found.total} noun="queue" onSkip=${(n) => setQuery({ skip: n || "" })} />
    `}<//>
    <${Commands} commands=${["sparrow queue list", `curl ${location.origin}/v1/overview/queues`]} />
    ${creating && html`<${Create} onClose=${() => setCreating(false)} />`}`;
}

function columns() {
  return [
    { name: "Queue", wide: true, cell: (each) => html`<${Link} to=${href(["queues", each.name])}>${each.name}<//>
        ${each.is_paused && html` <${Badge} kind="warn">paused<//>`} ${each.kind !== "queue" && html` <${Badge} kind="quiet">${each.kind === "dead" ? "dead letters" : each.kind}<//>`}` },
    { name: "State", cell: (each) => html`<${StateBar} statistics=${each.statistics} />` },
    { name: "Unfinished", number: true, cell: (each) => count(each.statistics.unfinished) },
    { name: "Dead", number: true, cell: (each) => (each.statistics.dead ? html`<${Link} to=${href(["queues", each.name, "dead-letters"])}>${count(each.statistics.dead)}<//>` : "0") },
    { name: "Published", number: true, cell: (each) => rate(each.statistics.published_rate) },
    { name: "Acknowledged", number: true, cell: (each) => rate(each.statistics.acknowledged_rate) },
    { name: "Oldest", number: true, cell: (each) => duration(each.statistics.oldest_ms) },
    { name: "Consumers", number: true, cell: (each) => each.statistics.consumers.length },
  ];
}

/** @param {{onClose: () => void}} props */
function Create({ onClose }) {
  const [form, setForm] = useState({ name: "", topics: "" });
  const set = (name) => (event) => setForm((old) => ({ ...old, [name]: event.target.value }));
  const create = async () => {
    const topics = form.topics.split(",").map((each) => each.trim()).filter(Boolean);
    await post("/v1/queues", { name: form.name, topics });
    go(href(["queues", form.name]));
  };
  return html`<${Dialog} title="Create queue" onClose=${onClose}>
    <${Field} label="Name"><input value=${form.name} onInput=${set("name")} /><//>
    <${Field} label="Topics" hint="Separated by commas; empty: the topic of the same name. Missing ones are created."><input value=${form.topics} onInput=${set("topics")} /><//>
    <div class="actions"><${Action} kind="main" onClick=${create} disabled=${!form.name}>Create<//><button type="button" onClick=${onClose}>Cancel</button></div>
    <${Commands} commands=${[`sparrow queue create ${shell(form.name || "NAME")}`]} />
  <//>`;
}
