// One queue: state, records, consumers, dead letters, parents, policy, webhooks.
import { html, useState } from "../lib.js";
import { describe, get, only, part, post, request } from "../api.js";
import { count, duration, plural, rate, shell, time } from "../format.js";
import { go, href, Link, route, setQuery } from "../router.js";
import { useData } from "../state.js";
import { Action, Badge, Commands, Field, Figure, Heading, Loaded, Tabs } from "../parts/basics.js";
import { Chart } from "../parts/chart.js";
import { Destroy, Dialog } from "../parts/dialog.js";
import { MessageDrawer, preview } from "../parts/message.js";
import { queueFacts, StateBar } from "../parts/statebar.js";
import { Table } from "../parts/table.js";
import { DeadLetters } from "./deadletters.js";
import { Parents } from "./parents.js";
import { Webhooks } from "./webhooks.js";

/** @param {{name: string}} props */
export default function Queue({ name }) {
  const tab = route.value.parts[2] ?? "";
  const path = `/v1/queues/${part(name)}`;
  const loaded = useData((signal) => describe(path, signal), [name], { every: 2000 });
  const rights = useData(() => get("/v1/me", { group: name }), [name]);
  const mayDo = (operation) => Boolean(rights.data?.rights.group?.includes(operation));
  const [asking, setAsking] = useState("");
  const isDead = loaded.data?.kind === "dead";
  const tabs = [
    ["", "State"], ["records", "Records"], ["consumers", "Consumers"], !isDead && ["dead-letters", "Dead letters"],
    ["parents", "Parents"], ["policy", "Policy"], ["webhooks", "Webhooks"],
  ].map((each) => each && { id: each[0], name: each[1], to: href(["queues", name, ...(each[0] ? [each[0]] : [])]) });
  return html`<p class="crumb"><${Link} to=${href(["queues"])}>Queues<//></p>
    <${Heading} title=${name} loaded=${loaded}>
      ${loaded.data && mayDo("AlterConfigs") && html`<${Action} onClick=${async () => { await request("POST", `${path}/${loaded.data?.is_paused ? "resume" : "pause"}`); await loaded.reload(); }}>${loaded.data.is_paused ? "Resume" : "Pause"}<//>`}
      ${loaded.data && mayDo("Delete") && html`<button type="button" class="danger" onClick=${() => setAsking("purge")}>Purge</button>
        <button type="button" class="danger" onClick=${() => setAsking("delete")}>Delete queue</button>`}
    <//>
    <${Tabs} label="Queue" tabs=${tabs} current=${tab} />
    <${Loaded} loaded=${loaded}>${(queue) => html`
      ${tab === "" && html`<${State} queue=${queue} path=${path} />`}
      ${tab === "records" && html`<${Records} queue=${queue} path=${path} />`}
      ${tab === "consumers" && html`<${Consumers} queue=${queue} />`}
      ${tab === "dead-letters" && html`<${DeadLetters} queue=${queue} path=${path} mayPurge=${mayDo("Delete")} mayRead=${mayDo("Read")} reload=${loaded.reload} />`}
      ${tab === "parents" && html`<${Parents} queue=${queue} path=${path} />`}
      ${tab === "policy" && html`<${Policy} queue=${queue} path=${path} mayEdit=${mayDo("AlterConfigs")} reload=${loaded.reload} />`}
      ${tab === "webhooks" && html`<${Webhooks} queue=${queue} path=${path} mayEdit=${mayDo("AlterConfigs")} />`}
      ${asking && html`<${Loss} kind=${asking} name=${name} path=${path} reload=${loaded.reload} onClose=${() => setAsking("")} />`}
    `}<//>`;
}

/** @param {any} props */
function Loss({ kind, name, path, reload, onClose }) {
  const isPurge = kind === "purge";
  const loss = ({ topics, statistics: { unfinished, leased, consumers } }) => isPurge
    ? html`<p><strong>${plural(unfinished - leased, "job")}</strong> will be finished without a delivery; ${count(leased)} leased ones stay.</p>`
    : html`<p>The state of <strong>${plural(unfinished, "unfinished job")}</strong> will be lost, and ${plural(consumers.length, "consumer")} ended. The messages stay in ${topics.join(", ") || "their topics"}.</p>`;
  const run = (queue) => (isPurge ? post(`${path}/purge`, {}, only(queue)) : request("DELETE", path, { headers: only(queue) }));
  const done = () => { if (isPurge) { reload(); onClose(); } else go(href(["queues"])); };
  return html`<${Destroy} title=${isPurge ? "Purge queue" : "Delete queue"} name=${name} verb=${isPurge ? "Purge" : "Delete queue"}
    look=${() => describe(path)} facts=${queueFacts} loss=${loss} run=${run} onDone=${done} onClose=${onClose} />`;
}

/** @param {any} props */
function State({ queue, path }) {
  const s = queue.statistics;
  const history = useData(() => get("/v1/history", { queue: queue.name }), [queue.name], { every: 5000 });
  return html`<p>${queue.is_paused && html`<${Badge} kind="warn">paused<//> `}Takes from ${queue.topics.map((each, i) => html`${i ? ", " : ""}<${Link} to=${href(["topics", each])}>${each}<//>`)}.</p>
    <${StateBar} statistics=${s} isLarge />
    <dl class="figures">
      <${Figure} name="Published" value=${rate(s.published_rate)} /><${Figure} name="Delivered" value=${rate(s.delivered_rate)} note=${`${count(s.redelivered)} again`} />
      <${Figure} name="Acknowledged" value=${rate(s.acknowledged_rate)} note=${`${count(s.acknowledged)} since the start`} />
      <${Figure} name="Oldest" value=${duration(s.oldest_ms)} /><${Figure} name="Consumers" value=${count(s.consumers.length)} />
      <${Figure} name="Dead letters" value=${count(s.dead)} to=${href(["queues", queue.name, "dead-letters"])} />
    </dl>
    ${Object.keys(s.subscribers).length > 0 && html`<h2>Subscribers</h2><${Table} label="Subscribers" rows=${Object.entries(s.subscribers)} keyOf=${(each) => each[0]} columns=${[
      { name: "Subscriber", cell: ([name]) => name }, ...["ready", "leased", "delayed", "blocked"].map((state) => ({ name: state, number: true, cell: ([, each]) => count(each[state]) })),
    ]} />`}
    <h2>History</h2>
    <${Loaded} loaded=${history}>${(found) => html`<div class="charts">
      <${Chart} title="Jobs per second" times=${found.times_ms} show=${rate} series=${["published", "delivered", "acknowledged"].map((name) => ({ name, values: found.series[name] }))} />
      <${Chart} title="Unfinished" times=${found.times_ms} show=${count} series=${[{ name: "jobs", values: found.series.unfinished }]} />
    </div><p class="hint">The last 15 minutes of queues that did something; lost at a restart.</p>`}<//>
    <${Commands} commands=${[`sparrow queue describe ${shell(queue.name)}`, `sparrow queue pause ${shell(queue.name)}`, `sparrow queue purge ${shell(queue.name)}`, `curl ${location.origin}${path}`]} />`;
}

const SHOWN = ["ready", "leased", "delayed", "blocked", "moving"];

/** @param {any} props */
function Records({ queue, path }) {
  const { state = "", skip: at = "0", subscriber = "" } = route.value.query;
  const skip = Number(at) || 0;
  const subscribers = Object.keys(queue.statistics.subscribers);
  const chosen = subscriber || subscribers[0] || "";
  const query = { state: state || SHOWN.join(","), limit: 51, skip, subscriber: chosen };
  const loaded = useData((signal) => get(`${path}/messages`, query, signal), [queue.name, state, skip, chosen], { every: 3000 });
  const [open, setOpen] = useState(/** @type {any} */ (null));
  return html`<div class="filters">
      <${Field} label="State"><select value=${state} onChange=${(e) => setQuery({ state: e.target.value, skip: "" })}><option value="">all</option>${SHOWN.map((each) => html`<option value=${each}>${each} (${count(queue.statistics[each])})</option>`)}</select><//>
      ${subscribers.length > 0 && html`<${Field} label="Subscriber"><select value=${chosen} onChange=${(e) => setQuery({ subscriber: e.target.value, skip: "" })}>${subscribers.map((each) => html`<option value=${each}>${each}</option>`)}</select><//>`}
    </div>
    <${Loaded} loaded=${loaded}>${(found) => html`
      <${Table} label="Records" rows=${found.messages.slice(0, 50)} keyOf=${(each) => `${each.topic}:${each.partition}:${each.offset}`} onRow=${setOpen} empty="No record is in this state." columns=${[
        { name: "Published", cell: (each) => html`<button type="button" class="plain row" onClick=${(e) => { e.stopPropagation(); setOpen(each); }}>${time(each.timestamp_ms)}</button>` },
        { name: "State", cell: (each) => html`<${Badge} kind=${each.state === "leased" ? "info" : each.state === "blocked" ? "warn" : ""}>${each.state}<//>` },
        { name: "Place", cell: (each) => `${each.topic}/${each.partition} @${each.offset}` },
        { name: "Deliveries", number: true, cell: (each) => each.delivery_count },
        { name: "Priority", number: true, cell: (each) => each.priority },
        { name: "Consumer", cell: (each) => each.consumer || "–" },
        { name: "Last error", cell: (each) => each.error || "–" },
        { name: "Key", cell: (each) => preview(each, "key", 40) },
        { name: "Value", wide: true, cell: (each) => html`<span class="preview">${preview(each, "value")}</span>` },
      ]} />
      <div class="pager"><button type="button" disabled=${!skip} onClick=${() => setQuery({ skip: Math.max(0, skip - 50) || "" })}>Previous</button>
        <button type="button" disabled=${found.messages.length <= 50} onClick=${() => setQuery({ skip: skip + 50 })}>Next</button></div>`}<//>
    <${Commands} commands=${[`sparrow queue peek ${shell(queue.name)}`, `curl '${location.origin}${path}/messages?state=${state || SHOWN.join(",")}'`]} />
    ${open && html`<${MessageDrawer} message=${open} onClose=${() => setOpen(null)} extra=${html`<dt>State</dt><dd>${open.state}</dd><dt>Deliveries</dt><dd>${open.delivery_count}</dd>
      ${open.deliver_at_ms > 0 && html`<dt>Deliver at</dt><dd>${time(open.deliver_at_ms)}</dd>`}${open.error && html`<dt>Last error</dt><dd>${open.error}</dd>`}`} />`}`;
}

/** @param {any} props */
function Consumers({ queue }) {
  return html`<${Table} label="Consumers" rows=${queue.statistics.consumers} keyOf=${(each) => each.consumer_id} empty="Nobody takes from this queue now." columns=${[
      { name: "Consumer", cell: (each) => each.consumer_id, wide: true }, { name: "Client", cell: (each) => each.client_name || "–" },
      { name: "Subscriber", cell: (each) => each.subscriber || "–" }, { name: "Leased", number: true, cell: (each) => count(each.leased) },
    ]} />
    <${Commands} commands=${[`sparrow queue describe ${shell(queue.name)}`]} />`;
}

/** @param {any} props */
function Policy({ queue, path, mayEdit, reload }) {
  const [editing, setEditing] = useState(/** @type {any} */ (null));
  return html`<${Table} label="Policy" rows=${queue.settings} keyOf=${(each) => each.name} columns=${[
      { name: "Setting", wide: true, cell: (each) => html`<strong>${each.name}</strong><small>${each.help}</small>` },
      { name: "Value", cell: (each) => html`${each.value}${each.value !== each.default && html` <${Badge} kind="info">set<//>`}` },
      { name: "Default", cell: (each) => each.default },
      mayEdit && { name: "Change", cell: (each) => html`<button type="button" class="plain" aria-label=${`Change ${each.name}`} onClick=${() => setEditing(each)}>Change</button>` },
    ]} />
    <p class="hint">A change holds for everything from now on.</p>
    ${editing && html`<${EditPolicy} setting=${editing} queue=${queue} path=${path} reload=${reload} onClose=${() => setEditing(null)} />`}`;
}

/** @param {any} props */
function EditPolicy({ setting, queue, path, reload, onClose }) {
  const [text, setText] = useState(JSON.stringify(queue.policy[setting.name]));
  const save = async (body) => { await request("PATCH", path, { body }); await reload(); onClose(); };
  const value = () => { try { return JSON.parse(text); } catch { return text; } };
  return html`<${Dialog} title=${setting.name} onClose=${onClose}>
    <p>${setting.help}</p>
    <${Field} label="Value, as JSON" hint=${`Default: ${setting.default}`}><input value=${text} onInput=${(e) => setText(e.target.value)} /><//>
    <div class="actions"><${Action} kind="main" onClick=${() => save({ set: { [setting.name]: value() } })}>Save<//>
      <${Action} onClick=${() => save({ unset: [setting.name] })}>Back to the default<//><button type="button" onClick=${onClose}>Cancel</button></div>
    <${Commands} commands=${[`sparrow queue configure ${shell(queue.name)} --${setting.word.replaceAll("_", "-")} …`]} />
  <//>`;
}
