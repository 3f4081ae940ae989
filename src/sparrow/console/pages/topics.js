// The list of topics; a topic has a page of its own.
import { html, useState } from "../lib.js";
import { get, post } from "../api.js";
import { byteRate, bytes, count, rate, shell } from "../format.js";
import { go, href, Link, route, setQuery } from "../router.js";
import { may, useData } from "../state.js";
import { Action, Commands, Field, Heading, Loaded, Pager, SearchField } from "../parts/basics.js";
import { Dialog } from "../parts/dialog.js";
import { Table } from "../parts/table.js";
import { useRates } from "../parts/rates.js";
import Topic from "./topic.js";

const LIMIT = 50;
const COUNTED = ["messages_in", "bytes_in", "messages_out"];

export default function Topics() {
  const name = route.value.parts[1];
  return name ? html`<${Topic} key=${name} name=${name} />` : html`<${List} />`;
}

function List() {
  const { search = "", skip: at = "0" } = route.value.query;
  const skip = Number(at) || 0;
  const [creating, setCreating] = useState(false);
  const query = { pattern: search ? `*${search}*` : "*", limit: LIMIT, skip };
  const loaded = useData((signal) => get("/v1/overview/topics", query, signal), [search, skip], { every: 2000 });
  const rates = useRates(loaded.data?.topics ?? [], (each) => each.id, COUNTED, loaded.at);
  return html`<${Heading} title="Topics" loaded=${loaded}>
      ${may("Create") && html`<button type="button" class="main" onClick=${() => setCreating(true)}>Create topic</button>`}
    <//>
    <${SearchField} label="Name contains" value=${search} onInput=${(text) => setQuery({ search: text, skip: "" })} />
    <${Loaded} loaded=${loaded}>${(found) => html`
      <${Table} label="Topics" rows=${found.topics} keyOf=${(each) => each.id}
        empty=${search ? "No topic has such a name." : `There is no topic that you may see.${may("Create") ? " The first message creates one, or the button above." : ""}`}
        columns=${[
          { name: "Topic", cell: (each) => html`<${Link} to=${href(["topics", each.name])}>${each.name}<//>`, wide: true },
          { name: "Partitions", number: true, cell: (each) => count(each.partition_count) },
          { name: "Messages", number: true, cell: (each) => count(each.messages) },
          { name: "Size", number: true, cell: (each) => bytes(each.bytes) },
          { name: "In", number: true, cell: (each) => rate(rates[each.id]?.messages_in) },
          { name: "In, bytes", number: true, cell: (each) => byteRate(rates[each.id]?.bytes_in) },
          { name: "Read", number: true, cell: (each) => rate(rates[each.id]?.messages_out) },
        ]} />
      <${Pager} skip=${skip} limit=${LIMIT} total=${found.total} noun="topic" onSkip=${(n) => setQuery({ skip: n || "" })} />
    `}<//>
    <${Commands} commands=${["sparrow topic list", `curl ${location.origin}/v1/overview/topics`]} />
    ${creating && html`<${Create} onClose=${() => setCreating(false)} />`}`;
}

/** @param {{onClose: () => void}} props */
function Create({ onClose }) {
  const [form, setForm] = useState({ name: "", partitions: "" });
  const create = async () => {
    await post("/v1/topics", { name: form.name, ...(form.partitions ? { partitions: Number(form.partitions) } : {}) });
    go(href(["topics", form.name]));
  };
  return html`<${Dialog} title="Create topic" onClose=${onClose}>
    <form onSubmit=${(e) => e.preventDefault()}>
      <${Field} label="Name" hint="Letters, digits, dot, underscore and hyphen."><input value=${form.name} onInput=${(e) => setForm({ ...form, name: e.target.value })} /><//>
      <${Field} label="Partitions" hint="Empty: the broker's default."><input inputmode="numeric" value=${form.partitions} onInput=${(e) => setForm({ ...form, partitions: e.target.value })} /><//>
      <div class="actions"><${Action} kind="main" onClick=${create} disabled=${!form.name}>Create<//><button type="button" onClick=${onClose}>Cancel</button></div>
      <${Commands} commands=${[`sparrow topic create ${shell(form.name || "NAME")}${form.partitions ? ` --partitions ${form.partitions}` : ""}`]} />
    </form>
  <//>`;
}
