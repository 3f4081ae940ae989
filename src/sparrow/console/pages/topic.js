// One topic: messages, partitions, readers, configuration, publish.
import { html, useState } from "../lib.js";
import { describe, get, only, part, post, request } from "../api.js";
import { bytes, count, plural, shell } from "../format.js";
import { go, href, Link, route } from "../router.js";
import { useData } from "../state.js";
import { Action, Badge, Commands, Empty, Field, Heading, Loaded, Tabs } from "../parts/basics.js";
import { Destroy, Dialog } from "../parts/dialog.js";
import { Table } from "../parts/table.js";
import { PublishForm } from "../parts/publish.js";
import { Messages } from "./messages.js";

/** @param {{name: string}} props */
export default function Topic({ name }) {
  const tab = route.value.parts[2] ?? "messages";
  const path = `/v1/topics/${part(name)}`;
  const loaded = useData((signal) => describe(path, signal), [name], { every: 5000 });
  const rights = useData(() => get("/v1/me", { topic: name }), [name]);
  const mayDo = (operation) => Boolean(rights.data?.rights.topic?.includes(operation));
  const [asking, setAsking] = useState("");
  const tabs = [
    { id: "messages", name: "Messages" },
    { id: "partitions", name: "Partitions" },
    { id: "readers", name: "Readers" },
    loaded.data?.config.length && { id: "configuration", name: "Configuration" },
    mayDo("Write") && { id: "publish", name: "Publish" },
  ];
  const links = tabs.map((each) => each && { ...each, to: href(each.id === "messages" ? ["topics", name] : ["topics", name, each.id]) });
  return html`<p class="crumb"><${Link} to=${href(["topics"])}>Topics<//></p>
    <${Heading} title=${name} loaded=${loaded}>
      ${mayDo("Delete") && loaded.data && html`<button type="button" class="danger" onClick=${() => setAsking("delete")}>Delete topic</button>`}
    <//>
    <${Tabs} label="Topic" tabs=${links} current=${tab} />
    <${Loaded} loaded=${loaded}>${(topic) => html`
      ${tab === "messages" && html`<${Messages} topic=${topic} mayPublish=${mayDo("Write")} mayRead=${!rights.data || mayDo("Read")} />`}
      ${tab === "partitions" && html`<${Partitions} topic=${topic} path=${path} mayDo=${mayDo} onTruncate=${() => setAsking("truncate")} reload=${loaded.reload} />`}
      ${tab === "readers" && html`<${Readers} name=${name} path=${path} />`}
      ${tab === "configuration" && html`<${Configuration} topic=${topic} path=${path} mayEdit=${mayDo("AlterConfigs")} reload=${loaded.reload} />`}
      ${tab === "publish" && html`<${PublishForm} topic=${name} partitions=${topic.partition_count} />`}
      ${asking && html`<${Loss} kind=${asking} name=${name} path=${path} reload=${loaded.reload} onClose=${() => setAsking("")} />`}
    `}<//>`;
}

/** @param {any} topic */
const messagesOf = (topic) => topic.partitions.reduce((sum, p) => sum + p.end_offset - p.start_offset, 0);
/** @param {any} topic */
const bytesOf = (topic) => topic.partitions.reduce((sum, p) => sum + p.bytes, 0);

/** @param {any} props */
function Loss({ kind, name, path, reload, onClose }) {
  const look = async () => {
    const [topic, readers] = await Promise.all([describe(path), get(`${path}/readers`)]);
    return { ...topic, readers: [...readers.groups.map((g) => g.group), ...readers.queues.map((q) => q.name)] };
  };
  const facts = (topic) => ({
    id: topic.id, messages: count(messagesOf(topic)), partitions: topic.partition_count,
    ...Object.fromEntries(topic.config.map((each) => [each.name, each.value])),
  });
  const loss = (topic) => html`<p><strong>${plural(messagesOf(topic), "message")}</strong> (${bytes(bytesOf(topic))}) in ${plural(topic.partition_count, "partition")} will be lost${kind === "delete" ? ", and what groups have committed here" : ""}.</p>
    ${topic.readers.length > 0 && html`<p>Readers: ${topic.readers.join(", ")}.</p>`}`;
  const ends = (topic) => Object.fromEntries(topic.partitions.map((p) => [p.partition, p.end_offset]));
  const run = (topic) => kind === "delete" ? request("DELETE", path, { headers: only(topic) }) : post(`${path}/truncate`, { before: ends(topic) }, only(topic));
  const done = () => { if (kind === "delete") go(href(["topics"])); else { reload(); onClose(); } };
  return html`<${Destroy} title=${kind === "delete" ? "Delete topic" : "Delete all messages"} name=${name}
    verb=${kind === "delete" ? "Delete topic" : "Delete messages"} look=${look} facts=${facts} loss=${loss} run=${run} onDone=${done} onClose=${onClose} />`;
}

/** @param {any} props */
function Partitions({ topic, path, mayDo, onTruncate, reload }) {
  const [growing, setGrowing] = useState(false);
  return html`<${Table} label="Partitions" rows=${topic.partitions} keyOf=${(each) => each.partition} columns=${[
      { name: "Partition", number: true, cell: (each) => each.partition },
      { name: "First offset", number: true, cell: (each) => (each.start_offset < 0 ? html`<${Badge} kind="bad">damaged<//>` : count(each.start_offset)) },
      { name: "Next offset", number: true, cell: (each) => count(each.end_offset) },
      { name: "Messages", number: true, cell: (each) => count(each.end_offset - each.start_offset) },
      { name: "Size", number: true, cell: (each) => bytes(each.bytes) },
    ]} />
    <p>${plural(messagesOf(topic), "message")}, ${bytes(bytesOf(topic))}.</p>
    <div class="actions">
      ${mayDo("Alter") && html`<button type="button" onClick=${() => setGrowing(true)}>Add partitions</button>`}
      ${mayDo("Delete") && html`<button type="button" class="danger" onClick=${onTruncate}>Delete all messages</button>`}
    </div>
    <${Commands} commands=${[`sparrow topic describe ${shell(topic.name)}`, `sparrow topic add-partitions ${shell(topic.name)} ${topic.partition_count + 1}`, `curl ${location.origin}${path}`]} />
    ${growing && html`<${Grow} topic=${topic} path=${path} onClose=${() => setGrowing(false)} reload=${reload} />`}`;
}

/** @param {any} props */
function Grow({ topic, path, onClose, reload }) {
  const [total, setTotal] = useState(String(topic.partition_count + 1));
  const grow = async () => { await post(`${path}/partitions`, { total: Number(total) }); await reload(); onClose(); };
  return html`<${Dialog} title="Add partitions" onClose=${onClose}>
    <p>${topic.name} has ${plural(topic.partition_count, "partition")}. Keys go to other partitions from then on, and there is no way back.</p>
    <${Field} label="New number"><input inputmode="numeric" value=${total} onInput=${(e) => setTotal(e.target.value)} /><//>
    <div class="actions"><${Action} kind="main" onClick=${grow}>Add<//><button type="button" onClick=${onClose}>Cancel</button></div>
  <//>`;
}

/** @param {{name: string, path: string}} props */
function Readers({ name, path }) {
  const loaded = useData(async (signal) => {
    const [readers, { pipelines }] = await Promise.all([get(`${path}/readers`, {}, signal), get("/v1/pipelines", {}, signal)]);
    return { ...readers, flows: pipelines.filter((each) => each.sources.includes(name)) };
  }, [name], { every: 3000 });
  return html`<${Loaded} loaded=${loaded}>${(found) => html`
    <h2>Groups</h2>
    <${Table} label="Groups" rows=${found.groups} keyOf=${(each) => each.group} empty="No group has committed offsets here." columns=${[
      { name: "Group", cell: (each) => html`<${Link} to=${href(["groups", each.group])}>${each.group}<//>`, wide: true },
      { name: "Lag", number: true, cell: (each) => count(each.lag) },
      { name: "State", cell: (each) => each.state },
      { name: "Members", number: true, cell: (each) => each.members },
      { name: "Kind", cell: (each) => each.type },
    ]} />
    <h2>Queues</h2>
    <${Table} label="Queues" rows=${found.queues} keyOf=${(each) => each.id} empty="No queue takes from this topic." columns=${[
      { name: "Queue", cell: (each) => html`<${Link} to=${href(["queues", each.name])}>${each.name}<//>`, wide: true },
      { name: "Unfinished", number: true, cell: (each) => count(each.statistics.unfinished) },
      { name: "Leased", number: true, cell: (each) => count(each.statistics.leased) },
      { name: "Dead", number: true, cell: (each) => count(each.statistics.dead) },
      { name: "Consumers", number: true, cell: (each) => each.statistics.consumers.length },
    ]} />
    <h2>Pipelines</h2>
    <${Table} label="Flows" rows=${found.flows} keyOf=${(each) => `${each.name}/${each.flow}`} empty="No flow of a pipeline reads this topic." columns=${[
      { name: "Flow", cell: (each) => html`<${Link} to=${href(["pipelines"])}>${each.name} / ${each.flow}<//>`, wide: true },
      { name: "Lag", number: true, cell: (each) => count(each.lag) },
      { name: "State", cell: (each) => each.state },
      { name: "Writes", cell: (each) => each.target || "–" },
    ]} />
    <${Commands} commands=${[`curl ${location.origin}${path}/readers`]} />`}<//>`;
}

/** @param {any} props */
function Configuration({ topic, path, mayEdit, reload }) {
  const [editing, setEditing] = useState(/** @type {any} */ (null));
  return html`<${Table} label="Configuration" rows=${topic.config} keyOf=${(each) => each.name} columns=${[
      { name: "Setting", cell: (each) => html`<strong>${each.name}</strong><small>${each.help}</small>`, wide: true },
      { name: "Value", cell: (each) => html`${each.value || html`<${Badge} kind="quiet">empty<//>`} ${each.unit && html`<small>${each.unit}</small>`}` },
      { name: "Default", cell: (each) => each.default },
      { name: "Set by", cell: (each) => html`<${Badge} kind=${each.source === "topic" ? "info" : "quiet"}>${each.source}<//>` },
      mayEdit && { name: "Change", cell: (each) => html`<button type="button" class="plain" aria-label=${`Change ${each.name}`} onClick=${() => setEditing(each)}>Change</button>` },
    ]} />
    ${!topic.config.length && html`<${Empty}>You may not see the configuration.<//>`}
    ${editing && html`<${EditSetting} topic=${topic} path=${path} setting=${editing} reload=${reload} onClose=${() => setEditing(null)} />`}`;
}

/** @param {any} props */
function EditSetting({ topic, path, setting, reload, onClose }) {
  const [value, setValue] = useState(setting.value);
  const save = async (body) => { await request("PATCH", path, { body }); await reload(); onClose(); };
  return html`<${Dialog} title=${setting.name} onClose=${onClose}>
    <p>${setting.help}</p>
    <${Field} label=${`Value${setting.unit ? ` (${setting.unit})` : ""}`} hint=${`Default: ${setting.default || "empty"}`}><input value=${value} onInput=${(e) => setValue(e.target.value)} /><//>
    <div class="actions">
      <${Action} kind="main" onClick=${() => save({ set: { [setting.name]: value } })}>Save<//>
      ${setting.source === "topic" && html`<${Action} onClick=${() => save({ unset: [setting.name] })}>Back to the default<//>`}
      <button type="button" onClick=${onClose}>Cancel</button>
    </div>
    <${Commands} commands=${[`sparrow topic configure ${shell(topic.name)} --set ${shell(`${setting.name}=${value}`)}`]} />
  <//>`;
}
