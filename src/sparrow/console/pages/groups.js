// Consumer groups: state, members, lag; reset with a preview.
import { html, useRef, useState } from "../lib.js";
import { describe, get, only, part, request } from "../api.js";
import { count, plural, shell } from "../format.js";
import { go, href, Link, route, setQuery } from "../router.js";
import { useData } from "../state.js";
import { Action, Badge, Commands, ErrorNote, Field, Heading, Loaded, Pager, SearchField } from "../parts/basics.js";
import { Destroy, Dialog } from "../parts/dialog.js";
import { Table } from "../parts/table.js";

const LIMIT = 50;

export default function Groups() {
  const name = route.value.parts[1];
  return name ? html`<${Group} key=${name} name=${name} />` : html`<${List} />`;
}

/** Words for how lags change since they were first seen here. */
function useTrend() {
  const seen = useRef(/** @type {Record<string, {lag: number, at: number}[]>} */ ({}));
  return (name, lag) => {
    const samples = (seen.current[name] ??= []);
    if (samples[samples.length - 1]?.lag !== lag) samples.push({ lag, at: Date.now() });
    if (samples.length > 20) samples.shift();
    if (samples.length < 2) return html`<${Badge} kind="quiet">steady<//>`;
    const change = lag - samples[0].lag;
    return change > 0 ? html`<${Badge} kind="warn">▲ grows (+${count(change)})<//>` : change < 0 ? html`<${Badge} kind="good">▼ shrinks (${count(change)})<//>` : html`<${Badge} kind="quiet">steady<//>`;
  };
}

function List() {
  const { search = "", skip: at = "0" } = route.value.query;
  const skip = Number(at) || 0;
  const query = { pattern: search ? `*${search}*` : "*", limit: LIMIT, skip };
  const loaded = useData((signal) => get("/v1/overview/groups", query, signal), [search, skip], { every: 2000 });
  const trend = useTrend();
  return html`<${Heading} title="Groups" loaded=${loaded} />
    <${SearchField} label="Name contains" value=${search} onInput=${(text) => setQuery({ search: text, skip: "" })} />
    <${Loaded} loaded=${loaded}>${(found) => html`
      <${Table} label="Groups" rows=${found.groups} keyOf=${(each) => each.group} empty=${search ? "No group has such a name." : "There is no group that you may see. A share group is a queue."} columns=${[
        { name: "Group", wide: true, cell: (each) => html`<${Link} to=${href(["groups", each.group])}>${each.group}<//>` },
        { name: "Lag", number: true, cell: (each) => count(each.lag) },
        { name: "Trend", cell: (each) => trend(each.group, each.lag) },
        { name: "State", cell: (each) => html`<${Badge} kind=${each.state === "stable" ? "good" : ""}>${each.state}<//>` },
        { name: "Members", number: true, cell: (each) => each.members },
        { name: "Kind", cell: (each) => each.type },
      ]} />
      <${Pager} skip=${skip} limit=${LIMIT} total=${found.total} noun="group" onSkip=${(n) => setQuery({ skip: n || "" })} />`}<//>
    <${Commands} commands=${["sparrow group list", `curl ${location.origin}/v1/overview/groups`]} />`;
}

/** @param {{name: string}} props */
function Group({ name }) {
  const path = `/v1/groups/${part(name)}`;
  const loaded = useData((signal) => describe(path, signal), [name], { every: 2000 });
  const rights = useData(() => get("/v1/me", { group: name }), [name]);
  const mayDo = (operation) => Boolean(rights.data?.rights.group?.includes(operation));
  const [asking, setAsking] = useState("");
  return html`<p class="crumb"><${Link} to=${href(["groups"])}>Groups<//></p>
    <${Heading} title=${name} loaded=${loaded}>
      ${loaded.data && mayDo("Read") && html`<button type="button" onClick=${() => setAsking("reset")} disabled=${!loaded.data.offsets.length}>Reset</button>`}
      ${loaded.data && mayDo("Delete") && html`<button type="button" class="danger" onClick=${() => setAsking("delete")}>Delete group</button>`}
    <//>
    <${Loaded} loaded=${loaded}>${(group) => html`
      <p><${Badge} kind=${group.state === "stable" ? "good" : ""}>${group.state}<//> ${group.type} group, ${plural(group.members.length, "member")}, lag ${count(lagOf(group))}.</p>
      <h2>Members</h2>
      <${Table} label="Members" rows=${group.members} keyOf=${(each) => each.member_id} empty="No member: nobody reads now." columns=${[
        { name: "Member", wide: true, cell: (each) => each.member_id }, { name: "Client", cell: (each) => each.client_name || "–" }, { name: "Host", cell: (each) => each.client_host || "–" },
        { name: "Partitions", wide: true, cell: (each) => each.partitions.map(([topic, index]) => `${topic}/${index}`).join(", ") || "none" },
      ]} />
      <h2>Offsets</h2>
      <${Table} label="Offsets" rows=${group.offsets} keyOf=${(each) => `${each.topic}/${each.partition}`} empty="Nothing was committed." columns=${[
        { name: "Topic", wide: true, cell: (each) => html`<${Link} to=${href(["topics", each.topic])}>${each.topic}<//>` }, { name: "Partition", number: true, cell: (each) => each.partition },
        { name: "Lag", number: true, cell: (each) => count(each.lag) }, { name: "Offset", number: true, cell: (each) => count(each.offset) }, { name: "End", number: true, cell: (each) => count(each.end_offset) },
      ]} />
      <${Commands} commands=${[`sparrow group describe ${shell(name)}`, `sparrow group reset ${shell(name)} TOPIC --to beginning`, `curl ${location.origin}${path}`]} />
      ${asking === "reset" && html`<${Reset} group=${group} path=${path} reload=${loaded.reload} onClose=${() => setAsking("")} />`}
      ${asking === "delete" && html`<${Destroy} title="Delete group" name=${name} verb="Delete group" onClose=${() => setAsking("")} look=${() => describe(path)} facts=${factsOf}
        loss=${(found) => html`<p><strong>${plural(found.offsets.length, "committed offset")}</strong> will be lost: readers of this group start from their own default position.</p>`}
        run=${(found) => request("DELETE", path, { headers: only(found) })} onDone=${() => go(href(["groups"]))} />`}`}<//>`;
}

/** @param {any} group */
const lagOf = (group) => group.offsets.reduce((sum, each) => sum + Math.max(0, each.lag), 0);

/**
 * What makes a group another one to people who are asked about it.
 * @param {any} group
 */
function factsOf(group) {
  const offsets = group.offsets.map((each) => [`offset of ${each.topic}/${each.partition}`, count(each.offset)]);
  return { state: group.state, epoch: group.epoch, members: group.members.map((each) => each.member_id).join(", "), ...Object.fromEntries(offsets) };
}

/**
 * Choose a position, see what moves, and type the name.
 * @param {any} props
 */
function Reset({ group, path, reload, onClose }) {
  const topics = [...new Set(group.offsets.map((each) => each.topic))];
  const [form, setForm] = useState({ topic: topics[0], to: "end", value: "" });
  const set = (name) => (event) => setForm((old) => ({ ...old, [name]: event.target.value }));
  const preview = useData(() => planOf(group, form), [form.topic, form.to, form.value]);
  const [isSure, setSure] = useState(false);
  if (isSure) {
    const look = async () => { const found = await describe(path); return { ...found, plan: await planOf(found, form) }; };
    const run = (found) => request("PUT", `${path}/offsets`, { body: { offsets: found.plan.map(({ partition, offset }) => ({ topic: form.topic, partition, offset })) }, headers: only(found) });
    return html`<${Destroy} title="Reset group" name=${group.group} verb="Reset" look=${look} facts=${factsOf} loss=${(found) => summary(found.plan)} run=${run}
      onDone=${async () => { await reload(); onClose(); }} onClose=${onClose} />`;
  }
  return html`<${Dialog} title="Reset group" onClose=${onClose}>
    ${group.members.length > 0 && html`<p class="note">The group has members, and they would move on at once: stop them first, otherwise this is refused.</p>`}
    <div class="fields">
      <${Field} label="Topic"><select value=${form.topic} onChange=${set("topic")}>${topics.map((each) => html`<option value=${each}>${each}</option>`)}</select><//>
      <${Field} label="To"><select value=${form.to} onChange=${set("to")}>${[["end", "newest"], ["beginning", "oldest"], ["time", "a time"], ["offset", "an offset"], ["back", "n before the end"]].map(([id, name]) => html`<option value=${id}>${name}</option>`)}</select><//>
      ${["time", "offset", "back"].includes(form.to) && html`<${Field} label=${form.to === "time" ? "Time" : form.to === "back" ? "n" : "Offset"}><input type=${form.to === "time" ? "datetime-local" : "number"} step="1" min="0" value=${form.value} onInput=${set("value")} /><//>`}
    </div>
    <${ErrorNote} error=${preview.error} />
    ${preview.data && html`${summary(preview.data)}<${Table} label="What moves" rows=${preview.data} keyOf=${(each) => each.partition} columns=${[
      { name: "Partition", number: true, cell: (each) => each.partition }, { name: "Now", number: true, cell: (each) => count(each.now) }, { name: "Then", number: true, cell: (each) => count(each.offset) },
      { name: "Moves", cell: (each) => movement(each.offset - each.now) },
    ]} />`}
    <div class="actions"><button type="button" class="main" disabled=${!preview.data?.length} onClick=${() => setSure(true)}>Go on</button><button type="button" onClick=${onClose}>Cancel</button></div>
    <${Commands} commands=${[`sparrow group reset ${shell(group.group)} ${shell(form.topic)} --to ${form.to === "end" || form.to === "beginning" ? form.to : form.value || "…"}`]} />
  <//>`;
}

/** @param {any[]} plan */
function summary(plan) {
  const again = plan.reduce((sum, each) => sum + Math.max(0, each.now - each.offset), 0);
  const skipped = plan.reduce((sum, each) => sum + Math.max(0, each.offset - each.now), 0);
  return html`<p><strong>${plural(again, "message")}</strong> will be read again, <strong>${plural(skipped, "message")}</strong> will be skipped.</p>`;
}

/** @param {number} by */
const movement = (by) => (by === 0 ? "stays" : by > 0 ? `${count(by)} skipped` : `${count(-by)} read again`);

/**
 * Where each partition of the topic goes.
 * @param {any} group
 * @param {any} form
 */
async function planOf(group, form) {
  const path = `/v1/topics/${part(form.topic)}/offsets`;
  const at = async (position) => Object.fromEntries((await get(path, { at: position })).offsets.map((each) => [each.partition, each.offset]));
  const [first, end] = await Promise.all([at("beginning"), at("end")]);
  const number = Number(form.value);
  const found = form.to === "time" && form.value ? await at(`timestamp:${new Date(form.value).getTime()}`) : {};
  const wanted = (index) => ({ end: end[index], beginning: first[index], offset: number, back: end[index] - number, time: found[index] >= 0 ? found[index] : end[index] }[form.to]);
  if (["time", "offset", "back"].includes(form.to) && form.value === "") return [];
  return group.offsets.filter((each) => each.topic === form.topic).map((each) => ({
    partition: each.partition, now: each.offset, offset: Math.min(Math.max(wanted(each.partition), first[each.partition]), end[each.partition]),
  }));
}
